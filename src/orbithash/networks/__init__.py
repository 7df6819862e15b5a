"""From images to embeddings."""

from orbithash.networks.backbones import PhotoBackbone, View, load_weights
from orbithash.networks.googlenet import GoogLeNet
from orbithash.networks.hashing_network import Backbone, HashingNetwork, embed
from orbithash.networks.small_cnn import SmallCNN

__all__ = [
    "BACKBONES",
    "Backbone",
    "GoogLeNet",
    "HashingNetwork",
    "PhotoBackbone",
    "SmallCNN",
    "View",
    "embed",
    "load_weights",
]

BACKBONES = {"small-cnn": SmallCNN, "googlenet": GoogLeNet}
