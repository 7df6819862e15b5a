"""One file for an encoder: safetensors, with a JSON description in its header; it holds no code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from orbithash.encoders.encoder import Encoder
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runs.estimators import put_together
from orbithash.errors import InputError
from orbithash.files import whole_file
from orbithash.hashers import Hasher
from orbithash.networks import BACKBONES, FeatureHead, HashingNetwork

HEADER = "orbithash"


def write_encoder(encoder: Encoder, file: Path) -> None:
    with whole_file(file) as opened:
        opened.write(encoder_to_bytes(encoder))


def encoder_to_bytes(encoder: Encoder) -> bytes:
    """Return the content of the encoder's file; equal encoders give equal bytes."""
    description, arrays = encoder.model()
    return save(arrays, metadata={HEADER: json.dumps(description)})


def read_encoder(file: Path) -> Encoder:
    """Read a file that `write_encoder` wrote."""
    try:
        with safe_open(file, framework="numpy") as opened:
            description = json.loads((opened.metadata() or {})[HEADER])
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return rebuilt(description, arrays)
    except FileNotFoundError:
        raise InputError(f"there is no encoder {file}; give a folder that train wrote") from None
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read an encoder from {file}: {reason}; train it again") from None


def encoder_from_bytes(content: bytes) -> Encoder:
    """Return the encoder whose file has this content."""
    n_header = int.from_bytes(content[:8], "little")
    try:
        metadata = json.loads(content[8 : 8 + n_header])["__metadata__"]
        return rebuilt(json.loads(metadata[HEADER]), load(content))
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read the encoder of the index: {reason}; index again") from None


def rebuilt(description: Any, arrays: dict[str, np.ndarray]) -> Encoder:
    if "images" in description:
        network = hashing_network(description["images"], arrays)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return ImageEncoder(network)
    if "arrays" in description:
        shape = tuple(description["arrays"]["input_shape"])
        return FeatureEncoder(hashing_network(description["arrays"], arrays), shape)
    if "head" in description:
        head = FeatureHead(**description["head"])
        head.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return FeatureEncoder(head.eval())
    hasher = put_together(description["hasher"], arrays)
    if not isinstance(hasher, Hasher):
        raise TypeError(f"it holds a {type(hasher).__name__}, not a hasher")
    return FeatureEncoder(hasher)


def hashing_network(description: Any, arrays: dict[str, np.ndarray]) -> HashingNetwork:
    backbone = BACKBONES[description["backbone"]](**description["arguments"])
    sizes = {name: description[name] for name in ("n_bits", "hidden", "dropout")}
    network = HashingNetwork(backbone, **sizes)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return network.eval()
