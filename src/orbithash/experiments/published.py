"""The paper's printed figures, to stand beside ours."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from orbithash.experiments.declarations import read_toml

PRINTED = ("main", "ablation", "selection")


@dataclass(frozen=True)
class Dataset:
    """A dataset that the paper has figures for."""

    key: str
    shown: str


def published_dataset(source: str) -> Dataset | None:
    """The paper's dataset whose name the source's name begins with, if there is one.

    >>> published_dataset("voc2007_googlenet").shown
    'VOC2007'
    >>> published_dataset("birds")
    """
    datasets: dict[str, str] = read_published()["datasets"]
    for key, shown in datasets.items():
        if source.lower().startswith(key):
            return Dataset(key, shown)
    return None


def published_map(dataset: str, method: str, n_bits: int) -> float | None:
    """The MAP that the paper prints, if it does; tables that share a method agree.

    >>> published_map("voc2007", "order_aware", 32)
    0.8041
    >>> published_map("voc2007", "order_aware", 24)
    """
    published = read_published()
    if n_bits not in published["bits"]:
        return None
    for table in PRINTED:
        figures = published[table][dataset].get(method)
        if figures is not None:
            return float(figures[published["bits"].index(n_bits)])
    return None


@cache
def read_published() -> dict[str, Any]:
    return read_toml("published.toml")
