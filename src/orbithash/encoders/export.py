"""An encoder as an `.onnx` file, for runtimes that know neither torch nor this library."""

import json
from pathlib import Path
from typing import Any

from orbithash.encoders.encoder import Encoder
from orbithash.files import whole_file


def export_encoder(encoder: Encoder, file: Path) -> None:
    """Write a model whose output `embeddings` (n, bits) is above 0.5 where a bit is set.

    Its input is `images`, uint8 (n, side, side, 3) in RGB, cropped from photographs as the model's
    metadata say under `view`; or `features`, float32 (n, n_features).
    """
    model, metadata = encoder.to_onnx()
    with whole_file(file) as opened:
        opened.write(with_metadata(model, metadata))


def with_metadata(model: bytes, metadata: dict[str, Any]) -> bytes:
    """Return the model with metadata that any runtime shows: JSON under the key `orbithash`."""
    import onnx

    loaded = onnx.load_from_string(model)
    onnx.helper.set_model_props(loaded, {"orbithash": json.dumps(metadata)})
    return bytes(loaded.SerializeToString())
