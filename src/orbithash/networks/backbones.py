"""What every backbone for photographs carries, and how its weights are read."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

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
    wanted = backbone.state_dict()
    name = type(backbone).__name__
    if missing := sorted(wanted.keys() - given.keys()):
        raise InputError(
            f"{file} lacks {len(missing)} of the {len(wanted)} weights of {name}, first of all "
            f"{missing[0]!r}; give the file that belongs to this backbone"
        )
    if foreign := sorted(given.keys() - wanted.keys() - backbone.unused_weights):
        raise InputError(
            f"{file} holds {foreign[0]!r}, which {name} has not; "
            "give the file that belongs to this backbone"
        )
    for key, weight in wanted.items():
        if given[key].shape != weight.shape:
            raise InputError(
                f"{key!r} in {file} has the shape {tuple(given[key].shape)}, but {name} needs "
                f"{tuple(weight.shape)}; give the file that belongs to this backbone"
            )
        if not torch.isfinite(given[key]).all():
            raise InputError(f"{key!r} in {file} is not finite; get the file again")
    backbone.load_state_dict({key: given[key] for key in wanted})
