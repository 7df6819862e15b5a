import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from orbithash.codes import binarize, pack
from orbithash.encoders import FeatureEncoder, ImageEncoder, runtime
from orbithash.encoders.runtime import (
    OnnxNetwork,
    choose_runtime,
    export_encoder,
    exported,
    run_by,
    to_onnx,
)
from orbithash.errors import InputError, MissingExtraError
from orbithash.hashers import HASHERS, Hasher
from orbithash.networks import (
    FeatureHead,
    GoogLeNet,
    HashingNetwork,
    PhotoBackbone,
    SmallCNN,
    View,
)


@pytest.mark.parametrize(
    ("installed", "n_images", "expected"),
    [(True, 999, "torch"), (True, 1000, "onnxruntime"), (False, 100_000, "torch")],
)
def test_onnxruntime_runs_many_images_where_it_is_installed(
    installed, n_images, expected, monkeypatch
):
    monkeypatch.setattr(runtime, "is_installed", lambda: installed)
    assert choose_runtime(nn.Linear(2, 2), n_images=n_images) == expected


def test_another_device_than_the_processor_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(runtime, "is_installed", lambda: True)
    assert choose_runtime(nn.Linear(2, 2, device="meta"), n_images=100_000) == "torch"


def test_an_unknown_runtime_is_refused():
    with pytest.raises(InputError, match="no runtime 'tpu'; choose from torch, onnxruntime"):
        run_by("tpu", nn.Linear(2, 2), side=4)


def pixels(n: int, side: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def by_torch(network: nn.Module, images: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return network.eval()(torch.from_numpy(images).permute(0, 3, 1, 2).float()).numpy()


@pytest.fixture(scope="module")
def googlenet() -> HashingNetwork:
    torch.manual_seed(0)
    network = HashingNetwork(GoogLeNet(), 32)
    for weight in network.parameters():
        # Large enough that activations neither vanish nor leave the normalisation idle.
        if weight.ndim == 4:
            nn.init.kaiming_normal_(weight, nonlinearity="relu")
    nn.init.normal_(network.head.hash_layer.weight, std=1e-3)
    return network


@pytest.mark.slow
def test_googlenet_gives_what_torch_gives_for_any_number_of_images(googlenet):
    # 75 pixels, so that every pool has a window that the border cuts off.
    runs = OnnxNetwork(googlenet, side=75)
    for n_images in (1, 4, 9):
        images = pixels(n_images, 75)
        expected = by_torch(googlenet, images)
        assert expected.std() > 0.05
        np.testing.assert_allclose(runs(images), expected, rtol=1e-4, atol=1e-5)


def test_embeddings_stay_in_0_to_1_where_the_sigmoid_is_rounded():
    head = FeatureHead(1, 1, hidden=0)
    nn.init.ones_(head.hash_layer.weight)
    nn.init.zeros_(head.hash_layer.bias)
    sums = torch.linspace(17.5, 18.5, 200_001)[:, None]  # onnxruntime gives 1.0000001 for some
    model = exported(head, sums[:2], input="sums", output="embeddings")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (embeddings,) = session.run(None, {"sums": sums.numpy()})
    assert 0.99 < embeddings.min() <= embeddings.max() <= 1


def test_exporting_leaves_the_network_as_it_was():
    network = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 3)).train()
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    runs = OnnxNetwork(network, side=4)
    assert network.training
    assert all((weight == before[name]).all() for name, weight in network.state_dict().items())
    images = pixels(3, 4)
    np.testing.assert_allclose(runs(images), by_torch(network, images), rtol=1e-4, atol=1e-4)


def test_the_model_is_a_valid_file_that_takes_bytes_in_batches_of_any_size():
    model = onnx.load_from_string(to_onnx(nn.Sequential(nn.Flatten(), nn.Linear(48, 3)), side=4))
    onnx.checker.check_model(model)
    (images,), (features,) = model.graph.input, model.graph.output
    assert (images.name, features.name) == ("images", "features")
    assert images.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    batch, *rest = images.type.tensor_type.shape.dim
    assert batch.dim_param  # a name instead of a number
    assert [size.dim_value for size in rest] == [4, 4, 3]


def test_without_its_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[onnx\]'"):
        OnnxNetwork(nn.Linear(3, 3), side=4)


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
    encoder = ImageEncoder(MeanColours(), FeatureHead(MeanColours.n_features, 8, hidden=0))
    export_encoder(encoder, tmp_path / "model.onnx")
    pixels = rng.integers(0, 256, size=(3, 8, 8, 3), dtype=np.uint8)
    embeddings = run_model(tmp_path / "model.onnx", {"images": pixels})
    wanted = encoder.head.embed(by_torch(encoder.backbone, pixels))
    np.testing.assert_allclose(embeddings, wanted, atol=1e-5)
    (note,) = onnx.load(tmp_path / "model.onnx").metadata_props
    assert json.loads(note.value)["view"]["crop"] == 8


def test_a_network_on_small_images_takes_them_as_they_are(tmp_path, rng):
    torch.manual_seed(0)
    encoder = FeatureEncoder(HashingNetwork(SmallCNN(), 8).eval(), (1, 8, 8))
    export_encoder(encoder, tmp_path / "model.onnx")
    images = rng.random((3, 1, 8, 8)).astype(np.float32)
    embeddings = run_model(tmp_path / "model.onnx", {"features": images})
    np.testing.assert_allclose(embeddings, encoder.embed(images), atol=1e-5)


@pytest.mark.parametrize(
    "method",
    # A linear one and a kernel are enough for every day.
    [m if m in ("itq", "ksh") else pytest.param(m, marks=pytest.mark.slow) for m in HASHERS],
)
def test_every_hasher_gives_the_same_codes_in_another_runtime(method, tmp_path, rng):
    features = rng.normal(1, 2, size=(60, 8)).astype(np.float32)
    hasher = HASHERS[method](n_bits=6, random_state=0).fit(features, np.arange(60) % 3)
    encoder = FeatureEncoder(hasher)
    export_encoder(encoder, tmp_path / "model.onnx")
    for n in (1, 50):
        more = rng.normal(1, 2, size=(n, 8)).astype(np.float32)
        embeddings = run_model(tmp_path / "model.onnx", {"features": more})
        np.testing.assert_allclose(embeddings, encoder.embed(more), atol=1e-5)
        assert np.array_equal(pack(binarize(embeddings)), encoder.encode(more))


def test_a_hasher_of_ones_own_is_not_exported(tmp_path, rng):
    class Unknown(Hasher):
        def __init__(self, n_bits: int = 8) -> None:
            self.n_bits, self.normalize = n_bits, False

        def fit(self, X, y=None):
            self.n_features_in_ = X.shape[1]
            return self

        def project(self, X):
            return np.full((len(X), self.n_bits), 0.7)

    encoder = FeatureEncoder(Unknown().fit(rng.normal(size=(30, 8))))
    with pytest.raises(InputError, match="a Unknown cannot be exported; use one of lsh"):
        export_encoder(encoder, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_a_hasher_encodes_images(tmp_path, rng):
    features = rng.random((30, MeanColours.n_features)).astype(np.float32)
    encoder = ImageEncoder(MeanColours(), HASHERS["itq"](n_bits=2, random_state=0).fit(features))
    export_encoder(encoder, tmp_path / "model.onnx")
    pixels = rng.integers(0, 256, size=(3, 8, 8, 3), dtype=np.uint8)
    embeddings = run_model(tmp_path / "model.onnx", {"images": pixels})
    wanted = encoder.head.embed(by_torch(encoder.backbone, pixels))
    np.testing.assert_allclose(embeddings, wanted, atol=1e-5)
