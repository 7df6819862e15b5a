"""An index together with its encoder: index images, and search by image, vector or id."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.codes import as_codes
from orbithash.data import open_unlabelled
from orbithash.encoders import Encoder, OnUnreadable, Progress
from orbithash.errors import InputError, UnknownLabelError
from orbithash.index import (
    Ball,
    DuplicateGroups,
    Index,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
    create_index,
    index_exists,
)
from orbithash.index import open_index as open_stored
from orbithash.retrieval.duplicates import across_sources
from orbithash.retrieval.indexing import IndexReport, index_source, source_identity
from orbithash.retrieval.query import Hit, Query, Result, by_embedding, find


def open_index(
    address: str | Path, *, encoder: Encoder | None = None, engine: str = "exact"
) -> "SearchIndex":
    """Open the index in a folder, or in Milvus, written `milvus:http://HOST:19530/NAME`.

    With an encoder, a missing index is created, and an existing one must hold that encoder's codes.
    Without one, the encoder is read from the index. `engine` searches the codes of a folder.
    """
    if encoder is None:
        return SearchIndex(open_stored(address, engine=engine))
    # Here and below: searching for a stored item must not wait for torch.
    from orbithash.encoders.runs.model_file import encoder_from_bytes, encoder_to_bytes

    content = encoder_to_bytes(encoder)
    if not index_exists(address):
        create_index(address, encoder.n_bits, encoder=content).close()
        return SearchIndex(open_stored(address, engine=engine), encoder)
    index = open_stored(address, engine=engine)
    try:
        stored = index.encoder()
        # Written again, because an older version may have written the same encoder differently.
        if content not in (stored, encoder_to_bytes(encoder_from_bytes(stored))):
            raise InputError(
                f"{address} holds codes of another encoder, which cannot be compared with this "
                "one's; give the run that made it, with the same --bits, or another name"
            )
    except BaseException:
        index.close()
        raise
    return SearchIndex(index, encoder)


def open_for_codes(address: str | Path, n_bits: int, encoder: Encoder | None = None) -> Index:
    """Open the index of an address to store codes in it, or create it.

    A new index keeps the encoder that made the codes, and an existing one must hold it.
    """
    if encoder is not None:
        if encoder.n_bits != n_bits:
            raise InputError(
                f"the run encodes to {encoder.n_bits} bits and the codes have {n_bits}; give the "
                "run that made them"
            )
        return open_index(address, encoder=encoder).index
    if not index_exists(address):
        create_index(address, n_bits).close()
    return open_stored(address)


def checked_bytes(code: Any) -> UInt8[np.ndarray, "..."]:
    """Return a code as bytes; raise unless all its numbers are."""
    numbers = np.asarray(code)
    if numbers.dtype.kind not in "iu" or (
        numbers.size and not 0 <= numbers.min() <= numbers.max() < 256
    ):
        raise InputError(f"got a code of {numbers.dtype} {code!r}; give bytes, 0 to 255")
    return numbers.astype(np.uint8)


class SearchIndex:
    """An index and the encoder of its codes; everything an `Index` can do, and more."""

    def __init__(self, index: Index, encoder: Encoder | None = None) -> None:
        self.index = index
        self._encoder = encoder

    @property
    def encoder(self) -> Encoder:
        """The encoder of the codes, read from the index when it is first needed."""
        if self._encoder is None:
            from orbithash.encoders.runs.model_file import encoder_from_bytes

            self._encoder = encoder_from_bytes(self.index.encoder())
        return self._encoder

    def add_images(
        self,
        source: Any,
        *,
        name: str | None = None,
        prune: bool = False,
        progress: bool | Progress | None = None,
        ray: str | None = None,
    ) -> IndexReport:
        """Encode and store the images, or features, of a source that are new or changed.

        `name` identifies the source in later calls. By default a path is its own name, and data in
        memory are known by their content. With `prune`, stored items that the source no longer has
        are removed. A progress bar is shown by default in a terminal. `ray` is the address of a Ray
        cluster that encodes, or "local".
        """
        from orbithash.encoders.progress import reporting

        data = open_unlabelled(source)
        with reporting(progress) as report:
            return index_source(
                self.index,
                self.encoder,
                data,
                source=name or source_identity(source, data),
                prune=prune,
                progress=report,
                ray=ray,
            )

    def query(
        self,
        item: Any = None,
        *,
        id: int | None = None,
        code: Any = None,
        k: int | None = None,
        radius: int | None = None,
        where: Where | None = None,
        symmetric: bool = False,
    ) -> list[Hit]:
        """Return the nearest items to an image (path, PIL image or array), vector, id or code.

        With a radius, all items within that Hamming distance are found, at most `k` if it is given;
        without one, the `k` nearest, 10 by default. A stored item is not among its own results.

        The embedding of an image or vector is compared with the stored codes by asymmetric
        distance, which says more than the query's own code does. An id, a code, and `symmetric`
        queries are compared by Hamming distance.
        """
        given = [value for value in (item, id, code) if value is not None]
        if len(given) != 1:
            raise InputError(f"got {len(given)} of item, id and code; give one of them")
        query = Query(None, id, k, radius, where)
        if item is not None:
            _, embeddings = self.encoder.embed_queries([item])
            if len(embeddings) != 1:
                raise InputError(f"got {len(embeddings)} vectors as one query; see query_many")
            query = by_embedding(query, embeddings[0], symmetric=symmetric)
        elif code is not None:
            code = as_codes(np.atleast_2d(checked_bytes(code)), self.n_bits)[0]
            query = replace(query, code=code)
        with self._suggesting_labels():
            (result,) = find(self.index, [query])
        return list(result.hits)

    def query_many(
        self,
        items: Iterable[Any] = (),
        *,
        ids: Sequence[int] = (),
        k: int | None = None,
        radius: int | None = None,
        where: Where | None = None,
        symmetric: bool = False,
        on_unreadable: OnUnreadable | None = None,
    ) -> list[tuple[str, Result]]:
        """Return the name and the result of each item, then of each id; see `query`.

        An image that cannot be read raises `UnreadableImageError`. With `on_unreadable`, such as
        the `append` of a list, that is called with the error, and the others are searched.
        """
        names: list[str] = []
        queries = [Query(id=identifier, k=k, radius=radius, where=where) for identifier in ids]
        if items := list(items):
            names, embeddings = self.encoder.embed_queries(items, on_unreadable)
            query = Query(None, None, k, radius, where)
            queries = [
                *(by_embedding(query, embedding, symmetric=symmetric) for embedding in embeddings),
                *queries,
            ]
        with self._suggesting_labels():
            results = find(self.index, queries)
        for result in results[len(names) :]:
            assert result.item is not None
            names.append(result.item.metadata.path or str(result.item.id))
        return list(zip(names, results, strict=True))

    def duplicates(
        self, radius: int, where: Where | None = None, *, across: tuple[str, str] | None = None
    ) -> DuplicateGroups:
        """Return the groups of near-duplicates, the largest first; exact.

        Two items are in one group if they differ in at most `radius` bits, or if other items
        connect them by such steps. With `across`, only groups that hold items of both sources: the
        names under which they were indexed, or folders that their files are in.
        """
        groups = self.index.duplicates(radius, where)
        return groups if across is None else across_sources(self.index, groups, *across)

    @contextmanager
    def _suggesting_labels(self) -> Iterator[None]:
        try:
            yield
        except UnknownLabelError as error:
            raise UnknownLabelError(error.label, self.label_counts()) from None

    @property
    def n_bits(self) -> int:
        return self.index.n_bits

    def __len__(self) -> int:
        return len(self.index)

    def add(
        self, ids: Any = None, codes: Any = None, metadata: Sequence[Metadata] | None = None
    ) -> Int64[np.ndarray, " n"]:
        """Store codes and return their ids, which are given out where none are given."""
        return self.index.add(ids, codes, metadata)

    def update(self, ids: Any, codes: Any, metadata: Sequence[Metadata] | None = None) -> None:
        self.index.update(ids, codes, metadata)

    def remove(self, ids: Any) -> int:
        return self.index.remove(ids)

    def get(self, ids: Any) -> Items:
        return self.index.get(ids)

    def search(self, queries: Any, k: int = 10, where: Where | None = None) -> Neighbours:
        """Return the k nearest items of each query; embeddings are compared asymmetrically."""
        return self.index.search(queries, k, where)

    def within(
        self, queries: Any, radius: int, where: Where | None = None, k: int | None = None
    ) -> list[Ball]:
        """Return the items within a Hamming radius of each query, at most the k nearest."""
        return self.index.within(queries, radius, where, k)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        return self.index.iterate(batch_size)

    def count(self, where: Where) -> int:
        return self.index.count(where)

    def sample(self, n: int, *, seed: int, where: Where | None = None) -> Items:
        return self.index.sample(n, seed=seed, where=where)

    def label_counts(self) -> dict[str, int]:
        return self.index.label_counts()

    def stats(self) -> IndexStats:
        return self.index.stats()

    def __getattr__(self, name: str) -> Any:
        """Return what the index has besides, such as `known` and `undamaged`."""
        if name.startswith("_") or name == "index":
            raise AttributeError(name)
        return getattr(self.index, name)

    def close(self) -> None:
        self.index.close()

    def __enter__(self) -> "SearchIndex":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
