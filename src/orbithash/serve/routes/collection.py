"""The index as a whole: figures, and a sample to start from."""

import secrets
from typing import Annotated

from fastapi import APIRouter, Query

from orbithash.index import Items
from orbithash.serve.schemas import About, Item, ItemPair, LabelCount, Sample, Stats
from orbithash.serve.service import Service
from orbithash.serve.statistics import Pair

MOST_LABELS = 1000  # that are listed


def collection_routes(service: Service) -> APIRouter:
    """What is about the index."""
    routes = APIRouter(tags=["collection"])

    def items(sample: Items) -> list[Item]:
        codes = (code.tobytes() for code in sample.codes)
        return [
            service.item(*each)
            for each in zip(sample.ids.tolist(), codes, sample.metadata, strict=True)
        ]

    def about(count: int) -> About:
        return About(
            count=count,
            n_bits=service.index.n_bits,
            takes_images=service.encoder is not None,
            may_add=bool(service.settings.keys.write),
            largest_k=service.settings.limits.k,
        )

    def look() -> Stats:
        found = service.statistics.get()

        def shown(pairs: tuple[Pair, ...]) -> list[ItemPair]:
            return [
                ItemPair(first=one(pair.first), second=one(pair.second), distance=pair.distance)
                for pair in pairs
            ]

        def one(position: int) -> Item:
            return service.item(
                int(found.sample.ids[position]),
                found.sample.codes[position].tobytes(),
                found.sample.metadata[position],
            )

        by_count = sorted(found.labels.items(), key=lambda pair: (-pair[1], pair[0]))
        return Stats(
            **about(found.count).__dict__,
            engine=found.engine,
            disk_bytes=found.disk_bytes,
            memory_bytes=found.memory_bytes,
            n_labels=len(by_count),
            labels=[LabelCount(label=name, count=n) for name, n in by_count[:MOST_LABELS]],
            sample_size=len(found.sample),
            bit_balance=[round(share, 4) for share in found.bit_balance],
            distances=list(found.distances),
            nearest=shown(found.nearest),
            farthest=shown(found.farthest),
        )

    @routes.get("/about", summary="What one must know of the index to search it")
    async def get_about() -> About:
        return await service.searching.run(lambda: about(len(service.index)))

    @routes.get("/stats", summary="What the index is like")
    async def get_stats() -> Stats:
        """Counts and labels of the whole index; bits and distances of a random sample.

        The figures are kept for some seconds, longer where they take long.
        """
        return await service.looking.run(look)

    @routes.get("/sample", summary="Some items at random")
    async def get_sample(
        n: Annotated[int, Query(ge=1, le=100, description="How many.")] = 12,
        seed: Annotated[
            int | None, Query(ge=0, le=2**63 - 1, description="The same seed, the same items.")
        ] = None,
    ) -> Sample:
        chosen = secrets.randbits(62) if seed is None else seed

        def draw() -> list[Item]:
            return items(service.index.sample(n, seed=chosen))

        return Sample(items=await service.searching.run(draw))

    return routes
