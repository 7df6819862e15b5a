"""Learn compact binary codes from labels and search images by Hamming distance."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("orbithash")
