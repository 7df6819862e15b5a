"""From images to embeddings."""

from pathlib import Path

from orbithash.errors import InputError
from orbithash.networks.backbones import PhotoBackbone, View, load_weights
from orbithash.networks.feature_head import FeatureHead
from orbithash.networks.googlenet import GoogLeNet
from orbithash.networks.hashing_network import Backbone, HashingNetwork, embed
from orbithash.networks.small_cnn import SmallCNN

__all__ = [
    "BACKBONES",
    "Backbone",
    "FeatureHead",
    "GoogLeNet",
    "HashingNetwork",
    "PhotoBackbone",
    "SmallCNN",
    "View",
    "embed",
    "load_photo_backbone",
    "load_weights",
]

BACKBONES = {"small-cnn": SmallCNN, "googlenet": GoogLeNet}


def load_photo_backbone(name: str, weights: Path | None) -> PhotoBackbone:
    """The backbone of that name with the weights of a file."""
    if name not in BACKBONES:
        raise InputError(f"there is no backbone {name!r}; choose from {', '.join(BACKBONES)}")
    backbone = BACKBONES[name]()
    if not isinstance(backbone, PhotoBackbone):
        raise InputError(f"{name} reads no photographs and has no weights; choose another backbone")
    if weights is None:
        raise InputError(f"{name} needs its weights, {backbone.weights_source}; give --weights")
    load_weights(backbone, weights)
    return backbone
