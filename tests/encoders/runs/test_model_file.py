import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from orbithash.encoders import FeatureEncoder
from orbithash.encoders.runs.model_file import read_encoder, write_encoder
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.networks import FeatureHead, HashingNetwork, SmallCNN

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


def test_a_small_network_read_again_gives_the_same_embeddings_to_the_last_bit(tmp_path):
    torch.manual_seed(0)
    encoder = FeatureEncoder(HashingNetwork(SmallCNN(), 10, hidden=5), (1, 8, 8))
    images = VECTORS[:, None, :8, None].repeat(8, axis=3)
    again = written_and_read(encoder, tmp_path)
    np.testing.assert_array_equal(again.embed(images), encoder.embed(images))
    assert (again.n_bits, again.n_features, again.input_shape) == (10, 64, (1, 8, 8))


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


def load_file_of(content, folder):
    (folder / "other").write_bytes(content)
    return load_file(folder / "other")


def written_and_read(encoder, folder):
    write_encoder(encoder, folder / "model.safetensors")
    return read_encoder(folder / "model.safetensors")
