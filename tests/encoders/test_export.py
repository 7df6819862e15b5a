import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from orbithash.codes import binarize, pack
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.encoders.runtime import export_encoder
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.networks import FeatureHead, HashingNetwork, PhotoBackbone, View


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class MeanColours(PhotoBackbone):
    n_features, view = 3, View(resize=12, crop=8)

    def forward(self, images):
        return images.mean((2, 3)) / 255


def run_model(file, inputs):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (embeddings,) = session.run(["embeddings"], inputs)
    return embeddings


def test_a_head_gives_the_same_codes_in_another_runtime(tmp_path, rng):
    head = FeatureHead(7, 12, hidden=5)
    head.fit_start(torch.from_numpy(rng.normal(2, 3, size=(50, 7)).astype(np.float32)))
    encoder = FeatureEncoder(head.eval())
    export_encoder(encoder, tmp_path / "model.onnx")
    for n in (1, 9):
        features = rng.normal(2, 3, size=(n, 7)).astype(np.float32)
        embeddings = run_model(tmp_path / "model.onnx", {"features": features})
        np.testing.assert_allclose(embeddings, encoder.embed(features), atol=1e-5)
        assert np.array_equal(pack(binarize(embeddings)), encoder.encode(features))


def test_a_network_takes_pixels_and_says_which_view_it_wants(tmp_path, rng):
    torch.manual_seed(0)
    encoder = ImageEncoder(HashingNetwork(MeanColours(), 8))
    export_encoder(encoder, tmp_path / "model.onnx")
    pixels = rng.integers(0, 256, size=(3, 8, 8, 3), dtype=np.uint8)
    embeddings = run_model(tmp_path / "model.onnx", {"images": pixels})
    wanted = encoder.network(torch.from_numpy(pixels).permute(0, 3, 1, 2).float())
    np.testing.assert_allclose(embeddings, wanted.detach().numpy(), atol=1e-5)
    (note,) = onnx.load(tmp_path / "model.onnx").metadata_props
    assert json.loads(note.value)["view"]["crop"] == 8


def test_a_hasher_is_refused(tmp_path, rng):
    features = rng.normal(size=(30, 8)).astype(np.float32)
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8).fit(features))
    with pytest.raises(InputError, match="only networks"):
        export_encoder(encoder, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
