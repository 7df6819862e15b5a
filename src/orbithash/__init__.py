"""Learn compact binary codes from labels and search images by Hamming distance."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbithash.encoders import FeatureEncoder, ImageEncoder

__all__ = ["__version__", "load"]

__version__ = version("orbithash")


def load(run: str | Path) -> "FeatureEncoder | ImageEncoder":
    """The encoder of a run that `orbithash train` wrote, ready to encode."""
    from orbithash.encoders import load as load_run  # importing orbithash must not load torch

    return load_run(run)
