import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import orbithash
from indexed_runs import feature_run, image_run
from orbithash.encoders import FeatureEncoder
from orbithash.encoders.runs.estimators import take_apart
from orbithash.encoders.runs.model_file import read_encoder, write_encoder
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.networks import FeatureHead

VECTORS = np.random.default_rng(0).standard_normal((60, 12)).astype(np.float32)
LABELS = np.arange(60) % 4


@pytest.mark.parametrize("method", HASHERS)
def test_a_hasher_read_again_gives_the_same_embeddings_to_the_last_bit(method, tmp_path):
    hasher = HASHERS[method](n_bits=8, random_state=np.random.RandomState(0)).fit(VECTORS, LABELS)
    again = written_and_read(FeatureEncoder(hasher), tmp_path)
    np.testing.assert_array_equal(again.network.project(VECTORS), hasher.project(VECTORS))
    assert again.network.get_params() == hasher.get_params() | {"random_state": None}


@pytest.mark.parametrize("hidden", [0, 7])
def test_a_head_read_again_gives_the_same_embeddings_to_the_last_bit(hidden, tmp_path):
    torch.manual_seed(0)
    head = FeatureHead(12, 10, hidden=hidden)
    head.fit_start(torch.from_numpy(VECTORS))
    encoder = FeatureEncoder(head)
    again = written_and_read(encoder, tmp_path)
    np.testing.assert_array_equal(again.embed(VECTORS), encoder.embed(VECTORS))
    assert (again.n_bits, again.n_features) == (10, 12)


def test_double_precision_gets_the_codes_of_single():
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS))
    np.testing.assert_array_equal(
        encoder.encode(VECTORS), encoder.encode(VECTORS.astype(np.float64))
    )


@pytest.mark.parametrize(
    "wrong",
    [VECTORS[:, :5], VECTORS[0], LABELS, np.full((2, 12), np.nan, dtype=np.float32)],
    ids=["too narrow", "one vector", "integers", "NaN"],
)
def test_vectors_that_do_not_fit_are_refused(wrong):
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS))
    with pytest.raises(InputError):
        encoder.encode(wrong)


def test_only_hashers_are_made_from_a_file(tmp_path):
    file = tmp_path / "model.safetensors"
    description = {"hasher": {"type": "Popen", "attributes": {"args": "ls"}}}
    save_file({"a": VECTORS}, file, metadata={"orbithash": json.dumps(description)})
    with pytest.raises(InputError, match="Popen"):
        read_encoder(file)


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS))
    file = tmp_path / "model.safetensors"
    write_encoder(encoder, file)
    whole = file.read_bytes()
    for content in (b"", whole[:-10], b"not safetensors"):
        file.write_bytes(content)
        with pytest.raises(InputError, match="cannot read an encoder"):
            read_encoder(file)
    save_file(load_file_of(whole, tmp_path), file)
    with pytest.raises(InputError, match="cannot read an encoder"):
        read_encoder(file)


def test_a_folder_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(InputError, match="there is no run"):
        orbithash.load(tmp_path / "nowhere")


def test_what_cannot_be_saved_is_named():
    with pytest.raises(TypeError, match=r"hasher\.rule is a function"):
        take_apart(lambda: None, "hasher.rule", {})


def load_file_of(content, folder):
    (folder / "other").write_bytes(content)
    return load_file(folder / "other")


def written_and_read(encoder, folder):
    write_encoder(encoder, folder / "model.safetensors")
    return read_encoder(folder / "model.safetensors")


def test_an_encoder_is_loaded_onto_a_device(tmp_path):
    images, features = image_run(tmp_path / "images"), feature_run(tmp_path / "features")
    encoder = orbithash.load(images, device="cpu:0")
    assert next(encoder.network.parameters()).device == torch.device("cpu")
    assert orbithash.load(features, device="cpu").n_bits == 12
    with pytest.raises(InputError, match="cannot run a network on 'gpu' here"):
        orbithash.load(images, device="gpu")
    with pytest.raises(InputError, match="features are encoded on cpu; cpu:0 is for images"):
        orbithash.load(features, device="cpu:0")
