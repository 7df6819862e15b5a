"""From images to embeddings."""

from orbithash.networks.hashing_network import Backbone, HashingNetwork, embed
from orbithash.networks.small_cnn import SmallCNN

__all__ = ["BACKBONES", "Backbone", "HashingNetwork", "SmallCNN", "embed"]

BACKBONES = {"small-cnn": SmallCNN}
