"""GET /about, /stats and /sample: the index as a whole."""

import heapq
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from jaxtyping import Int

from orbithash.codes import unpack
from orbithash.errors import UnknownLabelError
from orbithash.index import Index, Items
from orbithash.kernels.hamming import hamming_distances
from orbithash.retrieval.query import StoredItem, check_labels
from orbithash.serve.error_responses import SERVICE_ERRORS, error_response
from orbithash.serve.schemas import (
    MAX_LABELS,
    IndexInfo,
    IndexStatistics,
    Item,
    ItemPair,
    Label,
    LabelCount,
    SampleResponse,
)
from orbithash.serve.service import Service, label_filter

MAX_LABELS_LISTED = 1000
SAMPLE_SIZE = 1000  # items: half a million distances
N_PAIRS = 8  # nearest pairs shown, and as many farthest
# Statistics are cached for this multiple of the time they took, but at least MIN_CACHE_SECONDS.
CACHE_FACTOR = 20.0
MIN_CACHE_SECONDS = 10.0


def collection_routes(service: Service, statistics: "CachedStatistics") -> APIRouter:
    routes = APIRouter(tags=["collection"])

    def item_at(items: Items, position: int) -> Item:
        stored = StoredItem(
            int(items.ids[position]), items.codes[position], items.metadata[position]
        )
        return service.item(stored)

    def info(count: int) -> IndexInfo:
        return IndexInfo(
            count=count,
            n_bits=service.index.n_bits,
            takes_images=service.encoder is not None,
            may_add=bool(service.settings.keys.write),
            largest_k=service.settings.limits.k,
        )

    def statistics_response() -> IndexStatistics:
        current = statistics.get()

        def item_pairs(pairs: tuple[Pair, ...]) -> list[ItemPair]:
            return [
                ItemPair(
                    first=item_at(current.sample, pair.first),
                    second=item_at(current.sample, pair.second),
                    distance=pair.distance,
                )
                for pair in pairs
            ]

        return IndexStatistics(
            **info(current.count).__dict__,
            engine=current.engine,
            disk_bytes=current.disk_bytes,
            memory_bytes=current.memory_bytes,
            n_labels=current.n_labels,
            labels=[LabelCount(label=name, count=n) for name, n in current.frequent_labels.items()],
            sample_size=len(current.sample),
            bit_balance=[round(fraction, 4) for fraction in current.bit_balance],
            distances=list(current.distances),
            nearest=item_pairs(current.nearest),
            farthest=item_pairs(current.farthest),
        )

    @routes.get("/about", summary="What a client needs to know to search the index")
    async def get_about() -> IndexInfo:
        return await service.search_pool.run(lambda: info(len(service.index)))

    @routes.get("/stats", summary="Statistics of the index")
    async def get_stats() -> IndexStatistics:
        """Counts and labels of the whole index; bits and distances of a random sample.

        The statistics are cached for at least ten seconds, longer if they take long.
        """
        return await service.statistics_pool.run(statistics_response)

    @routes.get("/sample", summary="Random items")
    async def get_sample(
        n: Annotated[int, Query(ge=1, le=100, description="Number of items.")] = 12,
        seed: Annotated[
            int | None,
            Query(ge=0, le=2**63 - 1, description="The same seed returns the same items."),
        ] = None,
        labels: Annotated[
            list[Label] | None,
            Query(max_length=MAX_LABELS, description="Only items with one of these labels."),
        ] = None,
    ) -> SampleResponse:
        where = label_filter(labels or ())

        def draw() -> SampleResponse:
            check_labels(service.index, labels or ())
            chosen = secrets.randbits(62) if seed is None else seed
            sample = service.index.sample(n, seed=chosen, where=where)
            return SampleResponse(
                items=[item_at(sample, position) for position in range(len(sample))],
                count=len(service.index),
                n_with_labels=None if where is None else service.index.count(where),
            )

        return await service.search_pool.run(draw)

    return routes


def unknown_label_handler(
    service: Service, statistics: "CachedStatistics"
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return the handler of `UnknownLabelError`: a 422 that names similar labels."""

    async def on_unknown_label(request: Request, error: Exception) -> Response:
        assert isinstance(error, UnknownLabelError)
        label = error.label

        def with_suggestions() -> UnknownLabelError:
            return UnknownLabelError(label, statistics.get().frequent_labels)

        with suppress(*SERVICE_ERRORS):
            error = await service.statistics_pool.run(with_suggestions)
        return error_response(422, str(error))

    return on_unknown_label


@dataclass(frozen=True)
class Pair:
    """Two items and their Hamming distance."""

    first: int  # position in the sample
    second: int
    distance: int


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of the whole index where they are cheap, of a random sample where they are not."""

    count: int
    n_bits: int
    engine: str
    disk_bytes: int
    memory_bytes: int
    n_labels: int
    frequent_labels: dict[str, int]  # with their counts, the most frequent first, up to a limit
    sample: Items
    bit_balance: tuple[float, ...]  # fraction of ones at each bit position
    distances: tuple[int, ...]  # number of pairs of the sample at distance 0, 1, 2, …
    nearest: tuple[Pair, ...]
    farthest: tuple[Pair, ...]


def most_frequent(counts: dict[str, int]) -> dict[str, int]:
    by_count = heapq.nsmallest(
        MAX_LABELS_LISTED, counts.items(), key=lambda entry: (-entry[1], entry[0])
    )
    return dict(by_count)


class CachedStatistics:
    """Statistics of an index, recomputed when they expire; for use in one thread."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._cached: Statistics | None = None
        self._expires_at = 0.0

    def get(self) -> Statistics:
        start = time.monotonic()
        if self._cached is None or start > self._expires_at:
            self._cached = compute_statistics(self._index)
            end = time.monotonic()
            self._expires_at = end + max(MIN_CACHE_SECONDS, CACHE_FACTOR * (end - start))
        return self._cached


def compute_statistics(index: Index, *, seed: int = 0) -> Statistics:
    """Compute the statistics of an index; the sample depends only on the index and the seed."""
    stats, sample = index.stats(), index.sample(SAMPLE_SIZE, seed=seed)
    labels = index.label_counts()
    bits = unpack(sample.codes, index.n_bits)
    # In random order, so that pairs at equal distances come from the whole sample.
    pair = np.stack(np.triu_indices(len(sample), k=1))
    first, second = np.random.default_rng(seed).permutation(pair, axis=1)
    distances = hamming_distances(sample.codes, sample.codes)[first, second]
    order = np.argsort(distances, kind="stable")

    def pairs(order: Int[np.ndarray, " n"]) -> Iterator[Pair]:
        return (Pair(int(first[i]), int(second[i]), int(distances[i])) for i in order)

    return Statistics(
        count=stats.count,
        n_bits=index.n_bits,
        engine=stats.engine,
        disk_bytes=stats.disk_bytes,
        memory_bytes=stats.memory_bytes,
        n_labels=len(labels),
        frequent_labels=most_frequent(labels),
        sample=sample,
        bit_balance=tuple(bits.mean(axis=0).tolist()) if len(sample) else (),
        distances=tuple(np.bincount(distances, minlength=index.n_bits + 1).tolist()),
        nearest=first_disjoint(pairs(order)),
        farthest=first_disjoint(pairs(order[::-1])),
    )


def first_disjoint(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the first `N_PAIRS` pairs without common items, so that no outlier fills the list."""
    seen: set[int] = set()
    chosen: list[Pair] = []
    for pair in pairs:
        if pair.first not in seen and pair.second not in seen:
            seen |= {pair.first, pair.second}
            chosen.append(pair)
            if len(chosen) == N_PAIRS:
                break
    return tuple(chosen)
