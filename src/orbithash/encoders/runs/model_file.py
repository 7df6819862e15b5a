"""One file for an encoder: safetensors, with a JSON description in its header; it holds no code."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load, save

from orbithash.codes import check_n_bits
from orbithash.encoders.encoder import Encoder
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import HEAD_SIZES, ImageEncoder
from orbithash.errors import InputError, MissingExtraError
from orbithash.files import whole_file
from orbithash.networks import (
    BACKBONES,
    ClassCodeHead,
    FeatureHead,
    HashingNetwork,
    PhotoBackbone,
    make_head,
)
from orbithash.networks.rebuilding import network_of

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
    if not file.is_file():
        raise InputError(f"there is no encoder {file}; give a folder that train wrote")
    with refusing(f"cannot read an encoder from {file}", "train it again"):
        with safe_open(file, framework="numpy") as opened:
            description = json.loads((opened.metadata() or {})[HEADER])
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return rebuilt(description, arrays)


def encoder_from_bytes(content: bytes) -> Encoder:
    """Return the encoder whose file has this content."""
    n_header = int.from_bytes(content[:8], "little")
    with refusing("cannot read the encoder of the index", "index again"):
        metadata = json.loads(content[8 : 8 + n_header])["__metadata__"]
        return rebuilt(json.loads(metadata[HEADER]), load(content))


@contextmanager
def refusing(what: str, advice: str) -> Iterator[None]:
    """Turn any error into one of the file: a stranger's description can cause all of them."""
    try:
        yield
    except MissingExtraError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0].partition("; ")[0] or type(error).__name__
        raise InputError(f"{what}: {reason}; {advice}") from None


def rebuilt(description: Any, arrays: dict[str, np.ndarray]) -> Encoder:
    if "images" in description:
        return image_encoder(description["images"], arrays)
    if "arrays" in description:
        shape = tuple(description["arrays"]["input_shape"])
        return FeatureEncoder(hashing_network(description["arrays"], arrays), shape)
    return FeatureEncoder(rebuilt_head(description, arrays))


def image_encoder(description: Any, arrays: dict[str, np.ndarray]) -> ImageEncoder:
    backbone = network_of(backbone_maker(description), as_tensors(part_of(arrays, "backbone")))
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if "hasher" not in description:
        description = {"head": {"n_features": backbone.n_features, **head_sizes(description)}}
    return ImageEncoder(backbone, rebuilt_head(description, part_of(arrays, "head")))


def head_sizes(description: Any) -> dict[str, Any]:
    return {name: description[name] for name in HEAD_SIZES if name in description}


def rebuilt_head(
    description: Any, arrays: dict[str, np.ndarray]
) -> "FeatureHead | ClassCodeHead | Hasher":
    if "head" in description:
        sizes = dict(description["head"])
        n_features = sizes.pop("n_features")
        return network_of(lambda: make_head(n_features, sizes), as_tensors(arrays))
    from orbithash.encoders.runs.estimators import put_together
    from orbithash.hashers import Hasher

    hasher = put_together(description["hasher"], arrays)
    if not isinstance(hasher, Hasher):
        raise TypeError(f"it holds a {type(hasher).__name__}, not a hasher")
    check_projects(hasher, arrays)
    return hasher


def check_projects(hasher: "Hasher", arrays: dict[str, np.ndarray]) -> None:
    """Raise unless the hasher makes embeddings of a vector as long as one of its arrays."""
    check_n_bits(hasher.n_bits)
    n_bits, n_features = hasher.n_bits, int(getattr(hasher, "n_features_in_", 0))
    if not any(n_features in array.shape for array in arrays.values()):
        raise InputError(f"it takes {n_features} features, but no array of it has as many")
    embeddings = hasher.project(np.ones((1, n_features), np.float32))
    if embeddings.shape != (1, n_bits):
        raise InputError(f"it has {n_bits} bits, but its arrays make {embeddings.shape[1]}")


def hashing_network(description: Any, arrays: dict[str, np.ndarray]) -> HashingNetwork:
    make_backbone, sizes = backbone_maker(description), head_sizes(description)
    return network_of(lambda: HashingNetwork(make_backbone(), **sizes), as_tensors(arrays))


def backbone_maker(description: Any) -> Callable[[], PhotoBackbone]:
    return partial(BACKBONES[description["backbone"]], **description["arguments"])


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
