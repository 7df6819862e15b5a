"""Learn compact binary codes from labels and search images by Hamming distance.

`train`, `load`, `open_index`, `evaluate` and `evaluate_codes` are what most programs need; the
packages are attributes: `orbithash.losses`, `orbithash.hashers`, `orbithash.index` and so on.
"""

import importlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbithash.encoders import Encoder
    from orbithash.evaluation import evaluate, evaluate_codes
    from orbithash.networks import PhotoBackbone
    from orbithash.retrieval import open_index
    from orbithash.training import train

__all__ = [
    "__version__",
    "evaluate",
    "evaluate_codes",
    "load",
    "open_index",
    "train",
]

__version__ = version("orbithash")

# Loaded when they are first used: importing orbithash must load neither torch nor numba.
FUNCTIONS = {
    "evaluate": "orbithash.evaluation",
    "evaluate_codes": "orbithash.evaluation",
    "open_index": "orbithash.retrieval",
    "train": "orbithash.training",
}
PACKAGES = (
    "codes",
    "data",
    "encoders",
    "errors",
    "experiments",
    "evaluation",
    "hashers",
    "index",
    "losses",
    "metrics",
    "networks",
    "retrieval",
    "training",
)


def load(
    run: str | Path,
    *,
    backbone: "str | PhotoBackbone | None" = None,
    weights: str | Path | None = None,
    device: str = "cpu",
) -> "Encoder":
    """Load the encoder of a run that `train` wrote, or of an index, or `hf:OWNER/NAME` of the hub.

    On the Hugging Face Hub, `hf:OWNER/NAME@REVISION` is a branch, a tag or a commit.
    A run on features becomes an encoder of images with the `backbone` that extracted them, and its
    `weights`. An encoder of images runs on `device`, such as "cuda".
    """
    from orbithash.encoders import join_backbone, load_run
    from orbithash.index.addresses import remote_place
    from orbithash.networks.backbones import check_device

    check_device(device)
    if remote_place(run) is None:
        encoder = load_run(run)
    else:
        from orbithash.retrieval import open_index

        with open_index(run) as index:
            encoder = index.encoder
    if backbone is not None:
        encoder = join_backbone(encoder, backbone, weights)
    return encoder.to(device)


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return getattr(importlib.import_module(FUNCTIONS[name]), name)
    if name in PACKAGES:
        return importlib.import_module(f"orbithash.{name}")
    raise AttributeError(f"module 'orbithash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *PACKAGES})
