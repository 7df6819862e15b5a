"""Runs of untrained encoders, for tests where it does not matter which images are near."""

from pathlib import Path

import torch

from feature_files import clouds
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.encoders.runs.model_file import write_encoder
from orbithash.hashers import HASHERS
from orbithash.networks import HashingNetwork, load_photo_backbone


def image_run(folder: Path, *, n_bits: int = 24, seed: int = 0) -> Path:
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    network = HashingNetwork(load_photo_backbone("small-cnn", to_train=True), n_bits)
    encoder = ImageEncoder(network.backbone.eval(), network.head.eval())
    write_encoder(encoder, folder / "model.safetensors")
    return folder


def feature_run(folder: Path, *, n_bits: int = 12) -> Path:
    folder.mkdir(parents=True)
    hasher = HASHERS["lsh"](n_bits=n_bits, random_state=0).fit(clouds()["features"])
    write_encoder(FeatureEncoder(hasher), folder / "model.safetensors")
    return folder
