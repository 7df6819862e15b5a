"""A killed command is repeated and ends as if nothing had happened; a server keeps its word."""

import json
import random
import shutil
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from coloured_images import coloured
from faults.disturbed import Fault
from feature_files import write_clouds
from indexed_runs import feature_run, image_run
from orbithash.index.addresses import open_folder
from orbithash.networks import load_photo_backbone

N_KILLS = {"features": 8, "index": 16, "duplicates": 6, "reproduce": 6}
N_SERVERS = 8
KEY = "write-" + "w" * 20


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    coloured(folder / "photos", classes=4, per_class=10)
    image_run(folder / "run")
    feature_run(folder / "features-run")
    backbone = load_photo_backbone("small-cnn", to_train=True)
    save_file(backbone.state_dict(), folder / "backbone.safetensors")
    write_clouds(folder / "clouds.npz")
    return folder


def commands(sources: Path, out: Path) -> dict[str, tuple[object, ...]]:
    backbone = ("--backbone", "small-cnn", "--weights", sources / "backbone.safetensors")
    quick = ("--bits", "8", "--seeds", "1", "--epochs", "1")
    photos, clouds = sources / "photos", sources / "clouds.npz"
    return {
        "features": ("features", photos, *backbone, "--out", out / "f.npz"),
        "index": ("index", sources / "run", photos, "--out", out / "i.orbit"),
        "duplicates": (
            *("duplicates", clouds, "--encoder", sources / "features-run"),
            *("--picture", out / "d.png", "--force"),
        ),
        "reproduce": ("reproduce", "gamma", "--source", clouds, *quick, "--out", out / "t"),
    }


def result(kind: str, out: Path) -> object:
    """Return what a command has made, without times; raise if it is not whole."""
    if kind == "features":
        with np.load(out / "f.npz") as arrays:
            return {name: arrays[name].tobytes() for name in arrays if name != "made_with"}
    if kind == "index":
        with open_folder(out / "i.orbit", "a test") as index:
            assert index.check() == []
            found = [(items.metadata, items.codes.tolist()) for items in index.iterate()]
            return sorted(
                (m.path, c) for notes, codes in found for m, c in zip(notes, codes, strict=True)
            )
    if kind == "duplicates":
        return (out / "d.png").read_bytes() if (out / "d.png").exists() else b""
    return (out / "t" / "gamma" / "table.md").read_text()


@pytest.mark.parametrize("kind", N_KILLS)
def test_a_killed_command_is_repeated_and_makes_the_same(tmp_path, zygote, tally, sources, kind):
    first = tmp_path / "undisturbed"
    first.mkdir()
    count, output = tmp_path / "count", tmp_path / "output"
    counted = Fault(below=first, count=count)
    process = zygote.command(*commands(sources, first)[kind], output=output, fault=counted)
    assert process.wait() == 0, process.text()
    expected, n_operations = result(kind, first), count.stat().st_size
    rng = random.Random(0)
    for number in range(N_KILLS[kind]):
        out = tmp_path / str(number)
        out.mkdir()
        command = commands(sources, out)[kind]
        fault = Fault(below=out, kill_at=rng.randint(1, n_operations))
        assert zygote.command(*command, output=output, fault=fault).wait() == -signal.SIGKILL
        again = zygote.command(*command, output=tmp_path / f"{number}.txt")
        assert again.wait() == 0, again.text()
        assert result(kind, out) == expected
        tally.add(f"kill -9 of {kind}, then repeated")
        shutil.rmtree(out)


def test_a_killed_server_keeps_what_it_has_answered(tmp_path, zygote, tally, sources):
    index, output = tmp_path / "i.orbit", tmp_path / "output"
    made = zygote.command(
        "index", sources / "run", sources / "photos", "--out", index, output=output
    )
    assert made.wait() == 0, made.text()
    rng = random.Random(0)
    stored, codes = set(range(40)), {}
    for number in range(N_SERVERS):
        output = tmp_path / f"{number}.txt"
        fault = Fault(below=index, kill_at=rng.randint(10, 150), environment={"ORBITHASH_KEY": KEY})
        server = zygote.command("serve", index, "--port", "0", output=output, fault=fault)
        address = address_in(server)
        answered = 0
        doubtful: set[int] = set()
        try:
            while True:
                code = rng.randbytes(3).hex()
                added = ask(address, "POST", "/items", {"items": [{"code": code}] * 2})
                stored |= set(added["ids"])
                codes |= dict.fromkeys(added["ids"], code)
                doubtful = {rng.choice(sorted(stored))}
                ask(address, "DELETE", f"/items/{min(doubtful)}")
                stored -= doubtful
                doubtful = set()
                answered += 2
        except (OSError, urllib.error.URLError):
            assert server.wait() == -signal.SIGKILL, server.text()
        with open_folder(index, "a test") as opened:
            assert opened.check() == []
            items = [
                each
                for items in opened.iterate()
                for each in zip(items.ids.tolist(), items.codes, strict=True)
            ]
        found = {identifier: code.tobytes().hex() for identifier, code in items}
        lost = (stored - doubtful) - found.keys()
        assert not lost
        assert all(found[i] == code for i, code in codes.items() if i in found)
        # A write without an answer is there as a whole or not at all.
        assert len(found.keys() - stored) in (0, 2)
        stored = set(found)
        tally.add("kill -9 of serve, while a client writes", acknowledged=answered, lost=len(lost))


def address_in(server) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for line in server.text().splitlines():
            if line.startswith("  http"):
                return line.strip()
        time.sleep(0.05)
    raise AssertionError(server.text())


def ask(address: str, method: str, path: str, body: object = None):
    request = urllib.request.Request(
        f"{address}api/v1{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        content = response.read()
        return json.loads(content) if content else None
