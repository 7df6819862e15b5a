"""An encoder as an `.onnx` file, for runtimes that know neither torch nor this library."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runtime import exported, to_onnx
from orbithash.errors import InputError
from orbithash.files import whole_file
from orbithash.networks import FeatureHead

OUTPUT = "embeddings"


def export_encoder(encoder: FeatureEncoder | ImageEncoder, file: Path) -> None:
    """Write a model whose output `embeddings` (n, bits) are bits where they are above 0.5.

    Its input is `images`, uint8 (n, side, side, 3) in RGB, cut out of photographs as the model's
    metadata say under `view`; or `features`, float32 (n, n_features).
    """
    metadata: dict[str, Any] = {"n_bits": encoder.n_bits}
    if isinstance(encoder, ImageEncoder):
        model = to_onnx(encoder.network, side=encoder.view.crop, output=OUTPUT)
        metadata |= {"view": asdict(encoder.view)}
    elif isinstance(encoder.model, FeatureHead):
        example = torch.zeros(2, encoder.n_features)
        model = exported(encoder.model, example, input="features", output=OUTPUT)
        metadata |= {"n_features": encoder.n_features}
    else:
        raise InputError(
            f"the run holds a hasher ({type(encoder.model).__name__}); only networks that were "
            "trained with a loss can be exported"
        )
    with whole_file(file) as opened:
        opened.write(with_metadata(model, metadata))


def with_metadata(model: bytes, metadata: dict[str, Any]) -> bytes:
    """The model with a note that any runtime shows: JSON under the key `orbithash`."""
    import onnx

    loaded = onnx.load_from_string(model)
    onnx.helper.set_model_props(loaded, {"orbithash": json.dumps(metadata)})
    return bytes(loaded.SerializeToString())
