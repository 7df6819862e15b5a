"""What every backbone for photographs carries, and how its weights are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from orbithash.errors import InputError


@dataclass(frozen=True)
class View:
    """The part of a photograph that a backbone is shown when it encodes, and its size in pixels.

    The image is warped to a square of `resize` pixels, or with `keep_shape` its short side is made
    so long, and the square of `crop` pixels in its middle is cut out.
    """

    resize: int
    crop: int
    keep_shape: bool = False
    interpolation: str = "bilinear"  # between pixels: nearest, bilinear, bicubic or lanczos


class PhotoBackbone(nn.Module):
    """A backbone for photographs: RGB images with values 0 … 255 in, `n_features` numbers out.

    Whatever normalisation its weights were trained with happens inside. What a subclass says about
    itself:
    """

    n_features: int
    view: View
    weights_source: str  # where the weights come from, for whoever has none
    unused_weights: frozenset[str] = frozenset()  # what their file may hold beyond the backbone
    from_scratch: bool = False  # whether it is worth training without any weights to begin with

    @property
    def arguments(self) -> dict[str, Any]:
        """What makes this network again, without its weights: the class's arguments, for JSON."""
        return {}

    def registry_name(self) -> str:
        """Return the name under which `BACKBONES` lists this class."""
        from orbithash.networks import BACKBONES  # which imports the backbones

        for name, kind in BACKBONES.items():
            if type(self) is kind:
                return name
        raise TypeError(f"{type(self).__name__} cannot be saved; add it to BACKBONES")

    def installed_weights(self) -> dict[str, Tensor] | None:
        """The weights that an installed package brings; None where a file must be given."""
        return None


def load_weights(backbone: PhotoBackbone, file: Path) -> None:
    """Fill the backbone with the weights of a safetensors file; every one must be there and fit."""
    try:
        given = load_file(file)
    except FileNotFoundError:
        raise InputError(f"there is no file of weights {file}; check the path") from None
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"cannot read weights from {file}: {error}; give a safetensors file"
        ) from None
    fill(backbone, given, origin=str(file))


def fill(backbone: PhotoBackbone, given: Mapping[str, Tensor], *, origin: str) -> None:
    """Take these weights, or say what is wrong with them."""
    wanted = backbone.state_dict()
    name = type(backbone).__name__
    if missing := sorted(wanted.keys() - given.keys()):
        raise InputError(
            f"{origin} lacks {len(missing)} of the {len(wanted)} weights of {name}, first of all "
            f"{missing[0]!r}; give the file that belongs to this backbone"
        )
    if foreign := sorted(given.keys() - wanted.keys() - backbone.unused_weights):
        raise InputError(
            f"{origin} holds {foreign[0]!r}, which {name} has not; "
            "give the file that belongs to this backbone"
        )
    for key, weight in wanted.items():
        if given[key].shape != weight.shape:
            raise InputError(
                f"{key!r} in {origin} has the shape {tuple(given[key].shape)}, but {name} needs "
                f"{tuple(weight.shape)}; give the file that belongs to this backbone"
            )
        if not torch.isfinite(given[key]).all():
            raise InputError(f"{key!r} in {origin} is not finite; get the file again")
    backbone.load_state_dict({key: given[key] for key in wanted})


def check_device(device: str) -> None:
    """Raise unless numbers can be put there and taken back."""
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"cannot run a network on {device!r} here ({reason}); run it on cpu"
        ) from None
