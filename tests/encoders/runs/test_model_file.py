import json
import os

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from orbithash.encoders import FeatureEncoder
from orbithash.encoders.runs.model_file import read_encoder, write_encoder
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.networks import FeatureHead, HashingNetwork, SmallCNN
from process_memory import peak_memory


def backbone(name, arguments):
    return {"backbone": name, "arguments": arguments, "n_bits": 16}


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


LARGE = {
    "head": {"head": {"n_features": 10**6, "n_bits": 1024, "hidden": 0}},
    "class codes": {"head": {"n_features": 10**5, "n_bits": 64, "n_classes": 10}},
    "network": {"arrays": backbone("small-cnn", {"channels": 10**8}) | {"input_shape": [1, 8, 8]}},
    "view": {"images": backbone("small-cnn", {"channels": 3, "size": 10**6})},
}


@pytest.mark.parametrize("case", LARGE)
def test_a_few_bytes_that_describe_gigabytes_are_refused_without_using_memory(case, tmp_path):
    file = written(LARGE[case], {"weight": np.zeros(1, np.float32)}, tmp_path)
    before = peak_memory()
    with pytest.raises(InputError, match="cannot read an encoder"):
        read_encoder(file)
    assert peak_memory() - before < 100_000_000


def test_weights_of_another_shape_or_name_are_refused(tmp_path):
    head = {"n_features": 12, "n_bits": 8, "hidden": 0}
    weights = {name: w.numpy() for name, w in FeatureHead(12, 8, hidden=0).state_dict().items()}
    other_shape = weights | {"center": np.zeros(3, np.float32)}
    fewer = {name: weight for name, weight in weights.items() if name != "center"}
    for wrong, message in (
        (other_shape, r"'center' has the shape \(3,\), but is described with \(12,\)"),
        (fewer, "lacks the weight 'center'"),
        (weights | {"more": np.zeros(3, np.float32)}, "unexpected weight 'more'"),
    ):
        with pytest.raises(InputError, match=message):
            read_encoder(written({"head": head}, wrong, tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"n_bits": 10**9},
        {"n_bits": 7},
        {"n_bits": "8"},
        {"n_features_in_": 10**12},
        {"n_features_in_": None},
        {"hyperplanes_": 3},
        {"project": None},
    ],
    ids=str,
)
def test_a_hasher_that_cannot_encode_is_refused_when_it_is_read(change, tmp_path):
    hasher = HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS)
    description, arrays = FeatureEncoder(hasher).model()
    description["hasher"]["attributes"] |= change
    with pytest.raises(InputError, match="cannot read an encoder"):
        read_encoder(written(description, arrays, tmp_path))


@pytest.mark.parametrize(
    "description",
    [[], 7, {}, {"head": []}, {"images": 3}, {"images": {"backbone": "x"}}, {"hasher": {}}],
    ids=str,
)
def test_any_other_description_is_refused_in_one_line(description, tmp_path):
    with pytest.raises(InputError, match="cannot read an encoder") as raised:
        read_encoder(written(description, {"a": VECTORS}, tmp_path))
    assert "\n" not in str(raised.value)


def test_only_a_regular_file_is_opened(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")  # opening it would wait forever
    with pytest.raises(InputError, match="there is no encoder"):
        read_encoder(tmp_path / "model.safetensors")


def written(description, arrays, folder):
    file = folder / "model.safetensors"
    save_file(arrays, file, metadata={"orbithash": json.dumps(description)})
    return file


def load_file_of(content, folder):
    (folder / "other").write_bytes(content)
    return load_file(folder / "other")


def written_and_read(encoder, folder):
    write_encoder(encoder, folder / "model.safetensors")
    return read_encoder(folder / "model.safetensors")
