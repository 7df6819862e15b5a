"""Networks: backbones, the hash head, and `BACKBONES`, the registry."""

from pathlib import Path

from orbithash.errors import InputError
from orbithash.networks.backbones import PhotoBackbone, View, load_checked_weights, load_weights
from orbithash.networks.class_code_head import ClassCodeHead
from orbithash.networks.efficientnet_lite0 import EfficientNetLite0
from orbithash.networks.googlenet import GoogLeNet
from orbithash.networks.hashing_network import (
    Backbone,
    FeatureHead,
    HashingNetwork,
    embed,
    make_head,
    network_weights,
)
from orbithash.networks.second_path import SecondPath, power_normalized
from orbithash.networks.small_cnn import SmallCNN
from orbithash.networks.transformers_model import TransformersModel, load_transformers_model

__all__ = [
    "BACKBONES",
    "Backbone",
    "ClassCodeHead",
    "EfficientNetLite0",
    "FeatureHead",
    "GoogLeNet",
    "HashingNetwork",
    "PhotoBackbone",
    "SecondPath",
    "SmallCNN",
    "TransformersModel",
    "View",
    "embed",
    "load_photo_backbone",
    "load_weights",
    "make_head",
    "network_weights",
    "power_normalized",
    "small_backbone",
]

BACKBONES: dict[str, type[PhotoBackbone]] = {
    "small-cnn": SmallCNN,
    "googlenet": GoogLeNet,
    "efficientnet-lite0": EfficientNetLite0,
    "transformers": TransformersModel,
}


def load_photo_backbone(
    name: str, weights: Path | None = None, *, to_train: bool = False
) -> PhotoBackbone:
    """Create a backbone with the weights of a file, or of an installed package.

    With `to_train`, a backbone made to be trained from scratch needs no weights.
    """
    kind, _, model = name.partition(":")
    if kind not in BACKBONES or (model and kind != "transformers"):
        raise InputError(f"there is no backbone {name!r}; choose from {', '.join(BACKBONES)}")
    if kind == "transformers":
        return load_named_model(model, weights)
    backbone = SmallCNN(channels=3) if kind == "small-cnn" else BACKBONES[kind]()
    if weights is not None:
        load_weights(backbone, weights)
    elif (installed := backbone.installed_weights()) is not None:
        load_checked_weights(backbone, installed, origin=backbone.weights_source)
    elif not (to_train and backbone.from_scratch):
        raise InputError(f"{name} needs its weights, {backbone.weights_source}; give --weights")
    return backbone


def small_backbone(name: str, shape: tuple[int, ...]) -> PhotoBackbone:
    """Create a backbone with random weights for small images (channels, height, width)."""
    if name != "small-cnn" or len(shape) != 3:
        raise InputError(
            f"the backbone {name} cannot take arrays of shape {shape}; give images of shape "
            "(n, channels, height, width) to small-cnn, or image files"
        )
    return SmallCNN(channels=shape[0], size=shape[-1])


def load_named_model(model: str, weights: Path | None) -> TransformersModel:
    if not model:
        raise InputError(
            "transformers needs a model; write transformers:NAME or transformers:FOLDER"
        )
    if weights is not None:
        raise InputError("transformers models include their weights; leave --weights out")
    return load_transformers_model(model)
