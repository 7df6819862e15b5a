import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

from clean_processes import start
from orbithash.cli import run
from orbithash.index import create_index

pytest.importorskip("fastapi", reason="the extra serve is not installed")


@pytest.fixture
def index(tmp_path):
    with create_index(tmp_path / "codes.orbit", 16) as index:
        index.add(np.arange(5), np.arange(10, dtype=np.uint8).reshape(5, 2))
    return str(tmp_path / "codes.orbit")


def test_an_address_for_everyone_needs_a_key(index, capsys, monkeypatch):
    monkeypatch.delenv("ORBITHASH_KEY", raising=False)
    assert run(["serve", index, "--host", "0.0.0.0"]) == 2
    assert "--public" in capsys.readouterr().err


def test_a_key_that_can_be_guessed_is_refused(index, capsys, monkeypatch):
    monkeypatch.setenv("ORBITHASH_KEY", "secret")
    assert run(["serve", index]) == 2
    assert "ORBITHASH_KEY" in capsys.readouterr().err


def test_an_index_that_is_not_there_and_a_port_in_use_are_explained(index, tmp_path, capsys):
    assert run(["serve", str(tmp_path / "nothing.orbit")]) == 2
    assert "there is no index" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert run(["serve", index, "--port", str(used.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "exit_code", "workers"),
    [
        (signal.SIGINT, 0, 1),
        (signal.SIGTERM, -signal.SIGTERM, 1),
        (signal.SIGINT, 0, 2),
        (signal.SIGTERM, -signal.SIGTERM, 2),
    ],
)
def test_the_server_answers_until_it_is_told_to_end(index, tmp_path, told, exit_code, workers):
    output = tmp_path / "output.txt"
    process, address = started([index, "--workers", str(workers)], output)
    assert address.startswith("http://127.0.0.1:")
    with urlopen(f"{address}api/v1/stats", timeout=600) as answer:
        assert json.load(answer)["count"] == 5
    os.kill(process.pid, told)
    process.join(600)
    assert process.exitcode == exit_code
    assert "Traceback" not in output.read_text()


@pytest.mark.slow
def test_workers_share_the_memory_of_what_an_encoder_needs(tmp_path):
    from served_indexes import as_base64, picture_index

    index = str(picture_index(tmp_path))
    image = as_base64(next(tmp_path.glob("photos/*/*")).read_bytes())
    # Not by `start`, whose processes have torch already.
    command = [sys.executable, "-m", "orbithash", "serve", index, "--port", "0", "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = next(line.strip() for line in process.stdout if line.startswith("  http"))
        for _ in range(20):
            sent = json.dumps({"image": image, "k": 1}).encode()
            request = Request(f"{address}api/v1/search", sent, {"Content-Type": "application/json"})
            with urlopen(request, timeout=600) as answer:
                assert json.load(answer)["hits"][0]["distance"] < 12
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        for child in children:
            memory = Path(f"/proc/{child}/smaps_rollup").read_text()
            private = re.search(r"^Private_Dirty:\s+(\d+)", memory, re.MULTILINE)
            assert int(private[1]) < 100 << 10  # kB; torch alone takes more
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def started(arguments, output):
    """Start a server on a free port; return its process and its address."""
    process = start(["serve", *arguments, "--port", "0"], output=output)
    deadline = time.monotonic() + 600
    while "Ctrl-C" not in (output.read_text() if output.exists() else ""):
        assert process.is_alive(), output.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (address,) = [line.strip() for line in output.read_text().split("\n") if "http" in line]
    return process, address
