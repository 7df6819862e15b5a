import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from orbithash.encoders import runtime
from orbithash.encoders.runtime import OnnxNetwork, choose_runtime, exported, run_by, to_onnx
from orbithash.errors import InputError, MissingExtraError
from orbithash.networks import FeatureHead, GoogLeNet, HashingNetwork


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
