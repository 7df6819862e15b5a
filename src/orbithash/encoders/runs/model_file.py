"""One file for an encoder: safetensors, with what the arrays are in its header as JSON."""

import json
from pathlib import Path
from typing import Any
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn
from orbithash.files import whole_file
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.runs.estimators import put_together, take_apart
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.errors import InputError
from orbithash.hashers import Hasher
from orbithash.networks import BACKBONES, FeatureHead, HashingNetwork, PhotoBackbone


HEADER = "orbithash"


def write_encoder(encoder: FeatureEncoder | ImageEncoder, file: Path) -> None:
    """Write all that encoding needs; the file cannot hold code."""
    arrays: dict[str, np.ndarray] = {}
    model = encoder.network if isinstance(encoder, ImageEncoder) else encoder.model
    description: Any
    if isinstance(model, HashingNetwork):
        arrays = weights_of(model)
        assert isinstance(model.backbone, PhotoBackbone)
        description = {
            "images": {
                "backbone": name_of(model.backbone),
                "arguments": model.backbone.arguments,
                "n_bits": encoder.n_bits,
                "hidden": model.head.hidden,
                "dropout": model.head.dropout,
            }
        }
    elif isinstance(model, FeatureHead):
        arrays = weights_of(model)
        names = ("n_features", "n_bits", "hidden", "dropout")
        description = {"head": {name: getattr(model, name) for name in names}}
    else:
        description = {"hasher": take_apart(model, "", arrays)}
    with whole_file(file) as opened:
        opened.write(save(arrays, metadata={HEADER: json.dumps(description)}))


def weights_of(network: nn.Module) -> dict[str, np.ndarray]:
    """Each weight row by row, however it lies in memory."""
    return {
        name: weight.detach().cpu().contiguous().numpy()
        for name, weight in network.state_dict().items()
    }


def name_of(backbone: nn.Module) -> str:
    """What the registry calls a backbone."""
    for name, kind in BACKBONES.items():
        if type(backbone) is kind:
            return name
    raise TypeError(f"{type(backbone).__name__} cannot be saved; add it to BACKBONES")


def read_encoder(file: Path) -> FeatureEncoder | ImageEncoder:
    """The encoder of a file that `write_encoder` wrote."""
    try:
        with safe_open(file, framework="numpy") as opened:
            description = json.loads((opened.metadata() or {})[HEADER])
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return made_of(description, arrays)
    except FileNotFoundError:
        raise InputError(f"there is no encoder {file}; give a folder that train wrote") from None
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read an encoder from {file}: {reason}; train it again") from None


def made_of(description: Any, arrays: dict[str, np.ndarray]) -> FeatureEncoder | ImageEncoder:
    weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if "images" in description:
        made_with = description["images"]
        backbone = BACKBONES[made_with["backbone"]](**made_with["arguments"])
        sizes = {name: made_with[name] for name in ("n_bits", "hidden", "dropout")}
        network = HashingNetwork(backbone, **sizes)
        network.load_state_dict(weights)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return ImageEncoder(network.eval())
    if "head" in description:
        head = FeatureHead(**description["head"])
        head.load_state_dict(weights)
        return FeatureEncoder(head.eval())
    hasher = put_together(description["hasher"], arrays)
    if not isinstance(hasher, Hasher):
        raise TypeError(f"it holds a {type(hasher).__name__}, not a hasher")
    return FeatureEncoder(hasher)
