"""One file for an encoder: safetensors, with a JSON description in its header; it holds no code."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from orbithash.encoders.encoder import Encoder
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import HEAD_SIZES, ImageEncoder
from orbithash.errors import InputError
from orbithash.files import whole_file
from orbithash.networks import BACKBONES, ClassCodeHead, FeatureHead, HashingNetwork, make_head

if TYPE_CHECKING:  # an encoder without a hasher must not load scikit-learn
    from orbithash.hashers import Hasher

HEADER = "orbithash"


def write_encoder(encoder: Encoder, file: Path) -> str:
    """Write the encoder's file and return its digest."""
    content = encoder_to_bytes(encoder)
    with whole_file(file) as opened:
        opened.write(content)
    return hashlib.sha256(content).hexdigest()


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
        return image_encoder(description["images"], arrays)
    if "arrays" in description:
        shape = tuple(description["arrays"]["input_shape"])
        return FeatureEncoder(hashing_network(description["arrays"], arrays), shape)
    return FeatureEncoder(rebuilt_head(description, arrays))


def image_encoder(description: Any, arrays: dict[str, np.ndarray]) -> ImageEncoder:
    backbone = BACKBONES[description["backbone"]](**description["arguments"])
    backbone.load_state_dict(as_tensors(part_of(arrays, "backbone")))
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if "hasher" not in description:
        description = {"head": {"n_features": backbone.n_features, **head_sizes(description)}}
    return ImageEncoder(backbone.eval(), rebuilt_head(description, part_of(arrays, "head")))


def head_sizes(description: Any) -> dict[str, Any]:
    return {name: description[name] for name in HEAD_SIZES if name in description}


def rebuilt_head(
    description: Any, arrays: dict[str, np.ndarray]
) -> "FeatureHead | ClassCodeHead | Hasher":
    if "head" in description:
        sizes = dict(description["head"])
        head = make_head(sizes.pop("n_features"), sizes)
        head.load_state_dict(as_tensors(arrays))
        return head.eval()
    from orbithash.encoders.runs.estimators import put_together
    from orbithash.hashers import Hasher

    hasher = put_together(description["hasher"], arrays)
    if not isinstance(hasher, Hasher):
        raise TypeError(f"it holds a {type(hasher).__name__}, not a hasher")
    return hasher


def hashing_network(description: Any, arrays: dict[str, np.ndarray]) -> HashingNetwork:
    backbone = BACKBONES[description["backbone"]](**description["arguments"])
    network = HashingNetwork(backbone, **head_sizes(description))
    network.load_state_dict(as_tensors(arrays))
    return network.eval()


def part_of(arrays: dict[str, np.ndarray], part: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names start with `part.`, without that prefix."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def as_tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
