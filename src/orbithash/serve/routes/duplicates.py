"""GET /duplicates: groups of near-duplicates."""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from orbithash.codes import MAX_BITS
from orbithash.index import DuplicateGroup, DuplicateGroups, Index
from orbithash.retrieval.query import still_stored
from orbithash.serve.error_responses import UnprocessableError
from orbithash.serve.schemas import DuplicatesResponse, GroupItem, ItemGroup
from orbithash.serve.service import Service

DEFAULT_RADIUS = 3
# Beyond an eighth of the bits, images are hardly near-duplicates, and groups take long to find.
RADIUS_DIVISOR = 8
MAX_CACHED = 8  # radii; ten bytes for each item of a group
# Groups of an index that changes all the time are kept for this multiple of the time they took.
CACHE_FACTOR = 20.0


def duplicate_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["collection"])
    cache = CachedDuplicates(service.index)
    largest = max(1, service.index.n_bits // RADIUS_DIVISOR)
    max_items = service.settings.limits.k

    def item_group(group: DuplicateGroup, first: int, stop: int) -> ItemGroup:
        # Of a group that is kept, some items may have been removed since.
        ids = group.ids[first:stop].tolist()
        stored = still_stored(service.index, ids)
        items = [
            GroupItem(**service.item(stored[i]).__dict__, distance=distance)
            for i, distance in zip(ids, group.distances[first:stop].tolist(), strict=True)
            if i in stored
        ]
        return ItemGroup(size=len(group), spread=group.spread, items=items)

    @routes.get("/duplicates", summary="Groups of near-duplicates")
    async def get_duplicates(
        radius: Annotated[
            int | None,
            Query(ge=0, le=MAX_BITS, description="Bits in which two neighbours differ at most."),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=100, description="Number of groups.")] = 10,
        offset: Annotated[int, Query(ge=0, le=2**31, description="Groups to skip.")] = 0,
        items: Annotated[
            int, Query(ge=1, le=100, description="Items of each group, the first ones.")
        ] = 10,
        item_offset: Annotated[
            int, Query(ge=0, le=2**31, description="Items of each group to skip.")
        ] = 0,
    ) -> DuplicatesResponse:
        """Groups of items, the largest first; each item is within the radius of another of it.

        The radius is at most an eighth of the bits; its default is 3. The groups are kept, and
        may lag behind changes of the index by twenty times as long as they took to find.
        """
        radius = min(DEFAULT_RADIUS, largest) if radius is None else radius
        if radius > largest:
            raise UnprocessableError(f"radius is {radius}; at most {largest} is allowed")
        if limit * items > max_items:
            raise UnprocessableError(
                f"limit × items is {limit * items}; at most {max_items} is allowed"
            )
        groups = await service.search_pool.run(cache.current, radius)
        if groups is None:
            groups = await service.duplicates_pool.run(cache.get, radius)

        def respond() -> DuplicatesResponse:
            shown = groups[offset : offset + limit]
            return DuplicatesResponse(
                radius=radius,
                largest_radius=largest,
                n_groups=len(groups),
                n_items=len(groups.ids),
                n_bits=service.index.n_bits,
                count=len(service.index),
                groups=[item_group(group, item_offset, item_offset + items) for group in shown],
            )

        return await service.search_pool.run(respond)

    return routes


@dataclass(frozen=True, eq=False)
class Kept:
    """Groups, the version of the index they are of, and until when they are kept in any case."""

    groups: DuplicateGroups
    version: int | None
    expires_at: float


class CachedDuplicates:
    """Groups of an index by radius, the least recently used dropped first; thread-safe."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def current(self, radius: int) -> DuplicateGroups | None:
        """Return the groups if they are known and the index has not changed, or only just."""
        version = self._index.version()
        with self._lock:
            kept = self._kept.get(radius)
            if kept is None:
                return None
            is_same = version is not None and version == kept.version
            if not is_same and time.monotonic() > kept.expires_at:
                return None
            self._kept.move_to_end(radius)
            return kept.groups

    def get(self, radius: int) -> DuplicateGroups:
        """Return the groups, which take a while unless they are known; call it in one thread."""
        groups = self.current(radius)
        if groups is not None:
            return groups
        start, version = time.monotonic(), self._index.version()
        groups = self._index.duplicates(radius)
        end = time.monotonic()
        with self._lock:
            self._kept[radius] = Kept(groups, version, end + CACHE_FACTOR * (end - start))
            self._kept.move_to_end(radius)
            if len(self._kept) > MAX_CACHED:
                self._kept.popitem(last=False)
        return groups
