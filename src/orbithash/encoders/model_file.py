"""One file for an encoder: safetensors, with what the arrays are in its header as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from orbithash.data.whole_file import whole_file
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.fitted import put_together, take_apart
from orbithash.errors import InputError
from orbithash.hashers import Hasher
from orbithash.networks import FeatureHead

HEADER = "orbithash"


def write_encoder(encoder: FeatureEncoder, file: Path) -> None:
    """Write all that encoding needs; the file cannot hold code."""
    arrays: dict[str, np.ndarray] = {}
    model = encoder.model
    description: Any
    if isinstance(model, FeatureHead):
        arrays = {
            name: np.ascontiguousarray(weight) if weight.ndim else weight
            for name, weight in ((key, w.numpy()) for key, w in model.state_dict().items())
        }
        names = ("n_features", "n_bits", "hidden", "dropout")
        description = {"head": {name: getattr(model, name) for name in names}}
    else:
        description = {"hasher": take_apart(model, "", arrays)}
    with whole_file(file) as opened:
        opened.write(save(arrays, metadata={HEADER: json.dumps(description)}))


def read_encoder(file: Path) -> FeatureEncoder:
    """The encoder of a file that `write_encoder` wrote."""
    try:
        with safe_open(file, framework="numpy") as opened:
            description = json.loads((opened.metadata() or {})[HEADER])
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return FeatureEncoder(made_of(description, arrays))
    except FileNotFoundError:
        raise InputError(f"there is no encoder {file}; give a folder that train wrote") from None
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read an encoder from {file}: {reason}; train it again") from None


def made_of(description: Any, arrays: dict[str, np.ndarray]) -> FeatureHead | Hasher:
    if "head" in description:
        head = FeatureHead(**description["head"])
        head.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return head.eval()
    hasher = put_together(description["hasher"], arrays)
    if not isinstance(hasher, Hasher):
        raise TypeError(f"it holds a {type(hasher).__name__}, not a hasher")
    return hasher
