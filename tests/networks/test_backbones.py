import pytest
import torch
from safetensors.torch import save_file

from orbithash.errors import InputError
from orbithash.networks import GoogLeNet, load_photo_backbone


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return {name: torch.full_like(w, 0.5) for name, w in GoogLeNet().state_dict().items()}


def test_weights_are_loaded_and_the_classifier_is_ignored(weights, tmp_path):
    classifier = {"fc.weight": torch.zeros(1000, 1024), "fc.bias": torch.zeros(1000)}
    save_file(weights | classifier, tmp_path / "w.safetensors")
    backbone = load_photo_backbone("googlenet", tmp_path / "w.safetensors")
    assert all((weight == 0.5).all() for weight in backbone.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("conv1.conv.bias"), "lacks 1 of the 114 weights.*'conv1.conv.bias'"),
        (
            lambda w: w.update(extra=torch.zeros(1)),
            "unexpected key 'extra', which is no weight of GoogLeNet",
        ),
        (
            lambda w: w.update({"conv1.conv.bias": torch.zeros(3)}),
            r"shape \(3,\), but GoogLeNet needs \(64,\)",
        ),
        (lambda w: w.update({"conv1.conv.bias": torch.full((64,), torch.nan)}), "contains NaN"),
    ],
)
def test_weights_of_another_network_are_refused(weights, tmp_path, change, message):
    changed = dict(weights)
    change(changed)
    save_file(changed, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=message):
        load_photo_backbone("googlenet", tmp_path / "w.safetensors")


def test_a_file_that_is_not_safetensors_is_refused(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"PK\x03\x04 a pickle in a zip")
    with pytest.raises(InputError, match="give a safetensors file"):
        load_photo_backbone("googlenet", tmp_path / "w.pth")
    with pytest.raises(InputError, match="weights file not found"):
        load_photo_backbone("googlenet", tmp_path / "none.safetensors")


def test_unknown_backbones_and_missing_weights_are_refused_with_the_reason(tmp_path):
    with pytest.raises(InputError, match="no backbone 'resnet'; choose from small-cnn, googlenet"):
        load_photo_backbone("resnet", tmp_path)
    with pytest.raises(InputError, match="no backbone 'googlenet:v2'"):
        load_photo_backbone("googlenet:v2", tmp_path)
    with pytest.raises(InputError, match="small-cnn needs its weights, those of a run"):
        load_photo_backbone("small-cnn")
    with pytest.raises(InputError, match="googlenet needs its weights, a safetensors file of BVLC"):
        load_photo_backbone("googlenet", None)
