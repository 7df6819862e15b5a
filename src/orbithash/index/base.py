"""What every search engine offers, and what a search returns."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64, UInt8


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest items of each query, nearest first; equal distances in the order of ids."""

    ids: Int64[np.ndarray, "queries k"]
    distances: Int64[np.ndarray, "queries k"]


@runtime_checkable
class SearchEngine(Protocol):
    """Finds the stored codes nearest to a query's by Hamming distance."""

    n_bits: int

    def __len__(self) -> int: ...

    def add(self, ids: Int64[np.ndarray, " n"], codes: UInt8[np.ndarray, "n bytes"]) -> None: ...

    def search(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours: ...
