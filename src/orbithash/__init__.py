"""Learn compact binary codes from labels and search images by Hamming distance."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbithash.encoders import FeatureEncoder, ImageEncoder
    from orbithash.index import Index

__all__ = ["__version__", "load", "open_index"]

__version__ = version("orbithash")


def load(run: str | Path, *, device: str = "cpu") -> "FeatureEncoder | ImageEncoder":
    """The encoder of a run that `orbithash train` wrote, or of an index, ready to encode.

    That of images runs its network on the `device`, as "cuda".
    """
    from orbithash.encoders import load as load_run  # importing orbithash must not load torch

    return load_run(run, device=device)


def open_index(address: str | Path, *, engine: str = "exact") -> "Index":
    """The index in a folder that `orbithash index` wrote, or in Milvus.

    `milvus:http://HOST:19530/NAME` is a collection of a Milvus server. `engine` says how the codes
    of a folder are searched.
    """
    from orbithash.index import open_index as open_address  # nor need it load numba

    return open_address(address, engine=engine)
