"""Encoders are shared on the hub and loaded from it; here the hub is a stub on loopback."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import orbithash
from coloured_images import coloured
from feature_files import clouds, write_clouds
from indexed_runs import image_run
from orbithash.cli import run
from orbithash.encoders import FeatureEncoder, RunRecord, Training
from orbithash.errors import InputError, MissingExtraError, ServerError
from orbithash.hashers import HASHERS
from stub_hub import TOKEN, stub_hub

VECTORS = clouds()["features"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    with stub_hub() as hub:
        # Both are made from HF_ENDPOINT when the library is imported.
        files = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


@pytest.fixture
def encoder():
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=12, random_state=0).fit(VECTORS))
    record = RunRecord("lsh", 12, source="/home/me/secret/birds.npz", settings={"epochs": 3})
    encoder.training = Training(record)
    return encoder


def test_a_pushed_encoder_is_loaded_by_its_address(encoder, hub):
    address = encoder.push_to_hub("birds/codes")
    assert address == "hf:birds/codes"
    again = orbithash.load(address)
    np.testing.assert_array_equal(again.encode(VECTORS), encoder.encode(VECTORS))
    assert again.training.record.settings == {"epochs": 3}
    assert orbithash.load("hf:birds/codes@v1").n_bits == 12


def test_a_command_takes_an_address_as_its_run(encoder, hub, tmp_path):
    encoder.push_to_hub("birds/codes")
    file, out = write_clouds(tmp_path / "vectors.npz"), tmp_path / "codes.npz"
    assert run(["encode", "hf:birds/codes", str(file), "--out", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out)["codes"], encoder.encode(VECTORS))
    index = ["--out", str(tmp_path / "index")]
    assert run(["index", "--codes", "hf:birds/codes", str(out), *index]) == 0


def test_a_run_starts_from_an_encoder_of_the_hub(hub, tmp_path):
    source = write_clouds(tmp_path / "clouds.npz")
    options = {"bits": 8, "settings": {"epochs": 1, "hidden": 0}}
    orbithash.train(source, **options).push_to_hub("birds/head")
    encoder = orbithash.train(source, init="hf:birds/head", **options)
    assert encoder.training.record.init == "hf:birds/head"


def test_nothing_is_published_but_the_run_and_its_card(encoder, hub):
    encoder.push_to_hub("birds/codes")
    files = hub.repositories["birds/codes"]
    assert set(files) == {"README.md", "model.safetensors", "run.json", "scores.json"}
    assert not any(b"secret" in content for content in files.values())
    assert json.loads(files["run.json"])["source"] == "birds.npz"
    assert encoder.training.record.source == "/home/me/secret/birds.npz"


def test_only_the_files_of_a_run_are_downloaded(encoder, hub, tmp_path):
    encoder.push_to_hub("birds/codes")
    hub.repositories["birds/codes"]["pickled.pt"] = b"cos\nsystem\n"
    orbithash.load("hf:birds/codes")
    downloaded = {path.name for path in (tmp_path / "cache").rglob("snapshots/*/*")}
    assert downloaded == {"model.safetensors", "run.json", "scores.json"}


def test_a_flipped_bit_of_a_shared_encoder_is_noticed(encoder, hub):
    encoder.push_to_hub("birds/codes")
    model = bytearray(hub.repositories["birds/codes"]["model.safetensors"])
    model[-1] ^= 1
    hub.repositories["birds/codes"]["model.safetensors"] = bytes(model)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        orbithash.load("hf:birds/codes")


def test_an_encoder_is_pushed_again(encoder, hub):
    encoder.push_to_hub("birds/codes")
    encoder.push_to_hub("birds/codes", license="mit")
    assert b'license: "mit"' in hub.repositories["birds/codes"]["README.md"]


def test_the_card_says_how_the_encoder_was_trained_and_how_good_it_is(encoder, hub):
    labels = np.arange(len(VECTORS)) % 4
    scores = orbithash.evaluate(encoder, (VECTORS, labels))
    encoder.push_to_hub("birds/codes", scores=scores)
    card = hub.repositories["birds/codes"]["README.md"].decode()
    _, head, text = card.split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["library_name"] == "orbithash"
    (result,) = metadata["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == round(scores.map, 4)
    assert f"| {scores.map_bounds[0]:.4f} … {scores.map_bounds[1]:.4f} |" in text
    for part in ("| lsh |", "| 12 |", "| birds.npz |", 'orbithash.load("hf:birds/codes")'):
        assert part in text
    assert "None" not in text


def test_an_encoder_of_images_is_shared(hub, tmp_path):
    run = image_run(tmp_path / "run")
    encoder = orbithash.load(run)
    coloured(tmp_path / "photos")
    encoder.push_to_hub("birds/pictures")
    metadata = hub.repositories["birds/pictures"]["README.md"].decode()
    assert 'pipeline_tag: "image-feature-extraction"' in metadata
    image = tmp_path / "photos" / "0" / "0.png"
    again = orbithash.load("hf:birds/pictures")
    np.testing.assert_array_equal(again.encode([image]), encoder.encode([image]))


def test_the_program_of_the_page_shares_an_encoder(hub, tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs/how-to/share.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    image_run(tmp_path / "runs" / "birds")
    coloured(tmp_path / "birds")
    exec(program.replace("your-name/", "birds/"), {})
    assert "| MAP |" in hub.repositories["birds/bird-codes"]["README.md"].decode()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf:codes", "'codes' names no repository on the hub; write OWNER/NAME"),
        ("hf:birds--codes/x", "'birds--codes/x' cannot be a repository on the hub: Cannot have --"),
        ("hf:birds/nothing", "there is no repository birds/nothing that you may use"),
        ("hf:birds/codes@v7", "birds/codes has no such revision"),
        ("hf:birds/empty", "the repository birds/empty has no model.safetensors"),
    ],
)
def test_what_cannot_be_loaded_is_named(encoder, hub, address, message):
    encoder.push_to_hub("birds/codes")
    hub.repositories["birds/empty"] = {"README.md": b"#"}
    with pytest.raises(InputError, match=message):
        orbithash.load(address)


def test_an_owner_that_is_not_ones_own_is_refused(encoder, hub):
    with pytest.raises(ServerError, match=r"the hub did not serve others/codes.*403"):
        encoder.push_to_hub("others/codes")


def test_a_hub_that_does_not_answer_is_reported(encoder, hub, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ServerError, match="the hub did not serve birds/codes"):
        encoder.push_to_hub("birds/codes")
    with pytest.raises(ServerError, match="the hub did not serve birds/codes"):
        orbithash.load("hf:birds/codes")


def test_the_extra_is_named_where_it_is_missing(encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[hub\]'"):
        orbithash.load("hf:birds/codes")
    with pytest.raises(MissingExtraError):
        encoder.push_to_hub("birds/codes")
