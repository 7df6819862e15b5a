"""Encoders: images or features in, codes out."""

import importlib
from typing import TYPE_CHECKING, Any

from orbithash.encoders.encoder import Data, Encoded, Encoder, OnUnreadable, Progress, no_progress
from orbithash.encoders.encoding import encode_source
from orbithash.encoders.runs.record import Epoch, RunRecord, Training

if TYPE_CHECKING:
    from orbithash.encoders.feature_encoder import FeatureEncoder
    from orbithash.encoders.image_encoder import ImageEncoder, join_backbone
    from orbithash.encoders.runs.run_folder import load_run, read_record, save_run

__all__ = [
    "Data",
    "Encoded",
    "Encoder",
    "Epoch",
    "FeatureEncoder",
    "ImageEncoder",
    "OnUnreadable",
    "Progress",
    "RunRecord",
    "Training",
    "encode_source",
    "join_backbone",
    "load_run",
    "no_progress",
    "read_record",
    "save_run",
]

# Loaded when they are first used: searching for a stored item must not wait for torch.
NEED_TORCH = {
    "FeatureEncoder": "orbithash.encoders.feature_encoder",
    "ImageEncoder": "orbithash.encoders.image_encoder",
    "join_backbone": "orbithash.encoders.image_encoder",
    "load_run": "orbithash.encoders.runs.run_folder",
    "read_record": "orbithash.encoders.runs.run_folder",
    "save_run": "orbithash.encoders.runs.run_folder",
}


def __getattr__(name: str) -> Any:
    if name in NEED_TORCH:
        return getattr(importlib.import_module(NEED_TORCH[name]), name)
    raise AttributeError(f"module 'orbithash.encoders' has no attribute {name!r}")
