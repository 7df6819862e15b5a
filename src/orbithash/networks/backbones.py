"""The base class of image backbones, and the loading of their weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from orbithash.errors import InputError

MAX_SIDE = 4096  # pixels; networks take a few hundred


@dataclass(frozen=True)
class View:
    """Resize and centre crop of an image before a backbone encodes it; sizes in pixels.

    The image is warped to a square of `resize` pixels; with `keep_shape` its aspect ratio is kept,
    and its short side gets `resize` pixels. In both cases the central square of `crop` pixels is
    the network's input.
    """

    resize: int
    crop: int
    keep_shape: bool = False
    interpolation: str = "bilinear"  # nearest, box, bilinear, bicubic or lanczos

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize <= MAX_SIDE:
            raise InputError(
                f"got a view of {self.crop} pixels cut from {self.resize}; give 1 to {MAX_SIDE} "
                "pixels, and resize to at least as many as are cut"
            )


class PhotoBackbone(nn.Module):
    """A backbone for photographs: RGB images with values 0 … 255 in, `n_features` numbers out.

    `forward` takes (n, 3, height, width) and normalises the values as its weights expect.
    Subclasses set the following attributes.
    """

    n_features: int
    view: View
    weights_source: str  # a phrase for error messages: where to get the weights
    unused_weights: frozenset[str] = frozenset()  # keys of a weights file to ignore
    from_scratch: bool = False  # whether it may be trained from random weights

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor, for JSON: they rebuild the network without its weights."""
        return {}

    def registry_name(self) -> str:
        """Return the name under which `BACKBONES` lists this class."""
        from orbithash.networks import BACKBONES  # which imports the backbones

        for name, kind in BACKBONES.items():
            if type(self) is kind:
                return name
        raise TypeError(f"{type(self).__name__} cannot be saved; add it to BACKBONES")

    def installed_weights(self) -> dict[str, Tensor] | None:
        """Return the weights that an installed package contains; None if a file must be given."""
        return None


def load_weights(backbone: PhotoBackbone, file: Path) -> None:
    """Load the weights of a safetensors file; every key must be present and fit."""
    if not file.is_file():
        raise InputError(f"weights file not found: {file}; check the path")
    try:
        weights = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"cannot read weights from {file}: {error}; give a safetensors file"
        ) from None
    load_checked_weights(backbone, weights, origin=str(file))


def load_checked_weights(
    backbone: PhotoBackbone, weights: Mapping[str, Tensor], *, origin: str
) -> None:
    """Load a state dict after checking its keys, shapes and values.

    `load_state_dict` alone would not check for NaN and would list every key in its error.
    """
    expected = backbone.state_dict()
    name = type(backbone).__name__
    if missing := sorted(expected.keys() - weights.keys()):
        raise InputError(
            f"{origin} lacks {len(missing)} of the {len(expected)} weights of {name}, for example "
            f"{missing[0]!r}; give the weights file of this backbone"
        )
    if unexpected := sorted(weights.keys() - expected.keys() - backbone.unused_weights):
        raise InputError(
            f"{origin} has the unexpected key {unexpected[0]!r}, which is no weight of {name}; "
            "give the weights file of this backbone"
        )
    for key, weight in expected.items():
        if weights[key].shape != weight.shape:
            raise InputError(
                f"{key!r} in {origin} has the shape {tuple(weights[key].shape)}, but {name} needs "
                f"{tuple(weight.shape)}; give the weights file of this backbone"
            )
        if not torch.isfinite(weights[key]).all():
            raise InputError(
                f"{key!r} in {origin} contains NaN or infinite values; download the file again"
            )
    backbone.load_state_dict({key: weights[key] for key in expected})


def check_device(device: str) -> None:
    """Raise unless a tensor can be created on the device and read back."""
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"cannot run a network on {device!r} here ({reason}); use cpu") from None
