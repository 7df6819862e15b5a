"""What an index is like: its labels, its bits, and how far apart its items are."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from orbithash.codes import unpack
from orbithash.index import Index, Items
from orbithash.kernels.hamming import hamming_distances

SAMPLE = 1000  # items: half a million distances
PAIRS = 8  # nearest ones that are shown, and as many farthest
SHARE = 20.0  # figures are kept so many times as long as they took
FRESH = 10.0  # seconds that they are kept at least


@dataclass(frozen=True)
class Pair:
    """Two items, and the bits in which their codes differ."""

    first: int  # positions in the sample
    second: int
    distance: int


@dataclass(frozen=True, eq=False)
class Statistics:
    """Figures of a whole index where they are cheap, of a random sample where they are not."""

    count: int
    n_bits: int
    engine: str
    disk_bytes: int
    memory_bytes: int
    labels: dict[str, int]
    sample: Items
    bit_balance: tuple[float, ...]  # the share of ones at each place
    distances: tuple[int, ...]  # how many pairs of the sample are 0, 1, 2, … bits apart
    nearest: tuple[Pair, ...]
    farthest: tuple[Pair, ...]


def describe(index: Index, *, seed: int = 0) -> Statistics:
    """Look at an index; the sample is the same for the same index and seed."""
    facts, sample = index.stats(), index.sample(SAMPLE, seed=seed)
    bits = unpack(sample.codes, index.n_bits)
    between = hamming_distances(sample.codes, sample.codes)
    first, second = np.triu_indices(len(sample), k=1)
    apart = between[first, second]
    order = np.argsort(apart, kind="stable")

    def pairs(order: Int[np.ndarray, " n"]) -> Iterator[Pair]:
        return (Pair(int(first[i]), int(second[i]), int(apart[i])) for i in order)

    return Statistics(
        count=facts.count,
        n_bits=index.n_bits,
        engine=facts.engine,
        disk_bytes=facts.disk_bytes,
        memory_bytes=facts.memory_bytes,
        labels=index.label_counts(),
        sample=sample,
        bit_balance=tuple(bits.mean(axis=0).tolist()) if len(sample) else (),
        distances=tuple(np.bincount(apart, minlength=index.n_bits + 1).tolist()),
        nearest=without_repeats(pairs(order)),
        farthest=without_repeats(pairs(order[::-1])),
    )


def without_repeats(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The first few pairs in which every item comes once: one odd item must not fill the list."""
    chosen: list[Pair] = []
    seen: set[int] = set()
    for pair in pairs:
        if pair.first not in seen and pair.second not in seen:
            seen |= {pair.first, pair.second}
            chosen.append(pair)
            if len(chosen) == PAIRS:
                break
    return tuple(chosen)


class KeptStatistics:
    """The figures of an index, looked up anew when they are old; for use in one thread."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._kept: Statistics | None = None
        self._until = 0.0

    def get(self) -> Statistics:
        began = time.monotonic()
        if self._kept is None or began > self._until:
            self._kept = describe(self._index)
            took = time.monotonic() - began
            self._until = time.monotonic() + max(FRESH, SHARE * took)
        return self._kept
