"""Encoders: images or features in, codes out."""

from orbithash.encoders.encoder import Data, Encoded, Encoder, OnUnreadable, Progress, no_progress
from orbithash.encoders.encoding import encode_source
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder, join_backbone
from orbithash.encoders.runs.record import Epoch, RunRecord, Training
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
