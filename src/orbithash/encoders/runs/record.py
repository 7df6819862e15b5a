"""How an encoder was trained: the settings of the run, and what each epoch did."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class RunRecord:
    """All that determines a run: the same data, record and versions give the same encoder."""

    method: str
    n_bits: int
    seed: int = 0
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method, if not default
    # Of nested codes, the weight of the loss of each length; the longest is the whole code, also
    # if this encoder computes a prefix of it.
    nested: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    init: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    backbone: str | None = None  # of an encoder of images
    tune: str | None = None  # of an encoder of images: head, whole; None: of an earlier version
    views: int | None = None  # further views of each image that trained the head
    weights: str | None = None  # that the backbone started from
    data_digest: str | None = None  # of the images or features with labels and split
    features_by: str | None = None  # digest of the weights that extracted the features, if known
    held_out_classes: tuple[str, ...] = ()  # whose images did not train
    unlabelled: str | None = None  # the source of images that trained without labels
    labels: str = "source"  # or "none": the run learned without labels

    def prefixes(self) -> tuple[int, ...]:
        """Return the lengths below `n_bits` of nested codes."""
        return tuple(length for length in map(int, self.nested) if length < self.n_bits)


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch."""

    number: int  # from 0
    loss: float  # mean over the batches
    learning_rate: float
    active_share: float | None = (
        None  # share of triplets with a positive hinge, if the loss has any
    )
    bit_balance: float = 0.0  # 1: every bit is set for half of the images; 0: all bits are constant
    validation_map: float | None = None  # of the epochs that were validated
    seconds: float = 0.0


@dataclass(frozen=True)
class Training:
    """The record of a run and its history; a hasher has no epochs."""

    record: RunRecord
    history: tuple[Epoch, ...] = ()
    seconds: float = 0.0

    def of_prefix(self, n_bits: int) -> "Training":
        """Return the same training, as that of an encoder of the first bits."""
        return replace(self, record=replace(self.record, n_bits=n_bits))

    def best_epoch(self) -> Epoch | None:
        """Return the epoch whose weights were kept: the best validated one, otherwise the last."""
        validated = [epoch for epoch in self.history if epoch.validation_map is not None]
        if validated:
            return max(validated, key=lambda epoch: epoch.validation_map or 0.0)
        return self.history[-1] if self.history else None

    def scores(self) -> dict[str, Any]:
        """Return the content of a run's scores.json: validation figures, nothing of the queries."""
        best = self.best_epoch()
        return {
            "validation_map": best.validation_map if best else None,
            "best_epoch": best.number if best else None,
            "epochs": self.history[-1].number + 1 if self.history else 0,
            "seconds": round(self.seconds, 3),
        }


def package_versions() -> dict[str, str]:
    packages = ("orbithash", "numpy", "scikit-learn", "scipy", "numba", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
