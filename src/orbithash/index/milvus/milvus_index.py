"""Milvus: codes and metadata in a collection of a server or cluster.

Writes are upserts by id, so repeating one after a failure changes nothing. Reads wait for all
earlier writes (consistency level "Strong"), unless a search is allowed to miss the latest ones.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.codes import check_n_bits, code_bytes
from orbithash.errors import CodeLengthError, IdInUseError, InputError, UnknownIdError
from orbithash.index.base import (
    NO_METADATA,
    Ball,
    ClosesOnExit,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
)
from orbithash.index.candidates import Row, as_neighbours, nearest_candidates
from orbithash.index.checks import (
    add_under_new_ids,
    check_k,
    check_radius,
    checked_ids,
    checked_items,
    checked_next_id,
    checked_queries,
)
from orbithash.index.code_table import CodeTable
from orbithash.index.duplicates import DuplicateGroups, duplicate_groups
from orbithash.index.milvus.rows import (
    as_items,
    as_row,
    as_table,
    check_comparable,
    collection_description,
    described_bits,
    filter_expression,
    read_encoder,
    row_codes,
    sorted_hits,
    write_encoder,
)
from orbithash.index.milvus.server import MilvusServer
from orbithash.kernels.plain_search import as_words

logger = logging.getLogger(__name__)

MAX_ROWS = 16384  # that Milvus returns at once; also its limit on queries
FIRST_ROWS = 256  # Hamming neighbours among which an embedding's nearest are first looked for
BATCH_ROWS = 2000  # that are sent at once
CONSISTENCY_LEVELS = {"strong": "Strong", "bounded": "Bounded", "eventually": "Eventually"}
ALL_FIELDS = ["id", "code", "path", "source", "metadata"]


class MilvusIndex(ClosesOnExit):
    """A collection of a Milvus server, which compares the query with every code."""

    name: ClassVar[str] = "milvus"
    index_type: ClassVar[str] = "BIN_FLAT"

    def __init__(
        self,
        n_bits: int | None = None,
        *,
        server: str = "http://localhost:19530",
        collection: str = "orbithash",
        encoder: bytes | None = None,
        consistency: str = "strong",
    ) -> None:
        """Open a collection; with `n_bits`, create it if it does not exist.

        A search and `get` wait for all earlier writes if `consistency` is "strong". With "bounded"
        they may miss the writes of the last seconds, with "eventually" older ones too.
        """
        if consistency not in CONSISTENCY_LEVELS:
            raise InputError(
                f"got consistency={consistency!r}; choose one of {', '.join(CONSISTENCY_LEVELS)}"
            )
        self._level = CONSISTENCY_LEVELS[consistency]
        self._server = MilvusServer(server)
        self.collection = collection
        if not self._server.has(collection):
            if n_bits is None:
                raise InputError(
                    f"there is no collection {collection!r} at {server}; create it with "
                    f"orbithash index … --out milvus:{server}/{collection}"
                )
            self._create(n_bits, encoder)
        self.n_bits = described_bits(self._server.description(self.collection), self.collection)
        if n_bits is not None and n_bits != self.n_bits:
            raise CodeLengthError(
                f"{collection!r} exists, and its",
                got=code_bytes(self.n_bits),
                expected=code_bytes(n_bits),
                n_bits=n_bits,
            )
        self._check_index_type()
        self._server.make_searchable(collection, self.index_type, "code")

    @property
    def address(self) -> str:
        """The address by which `open_index` opens the collection."""
        return f"{self.name}:{self._server.address}/{self.collection}"

    def __len__(self) -> int:
        return self._count("")

    def add(
        self,
        ids: ArrayLike | None = None,
        codes: ArrayLike | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Store items under ids that are not in use, by default the next ones; return the ids."""
        if ids is None:
            return add_under_new_ids(self, codes, metadata)
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        if used := self._stored(ids):
            raise IdInUseError(next(i for i in ids.tolist() if i in used))
        self.update(ids, codes, metadata)
        return ids

    def update(
        self, ids: ArrayLike, codes: ArrayLike, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items, replacing those with the same ids."""
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        described = [NO_METADATA] * len(ids) if metadata is None else metadata
        for each in described:  # before any is stored
            check_comparable(each.fields)
        for start in range(0, len(ids), BATCH_ROWS):
            rows = [
                as_row(int(ids[i]), codes[i].tobytes(), described[i])
                for i in range(start, min(start + BATCH_ROWS, len(ids)))
            ]
            self._server.call("upsert", self.collection, rows)

    def remove(self, ids: ArrayLike) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""
        used = sorted(self._stored(checked_ids(ids)))
        for start in range(0, len(used), BATCH_ROWS):
            self._server.call("delete", self.collection, ids=used[start : start + BATCH_ROWS])
        return len(used)

    def get(self, ids: ArrayLike) -> Items:
        """Return these items, in this order."""
        ids = checked_ids(ids)
        rows = {row["id"]: row for row in self._fetch(ids, ALL_FIELDS, self._level)}
        for identifier in ids.tolist():
            if identifier not in rows:
                raise UnknownIdError(identifier)
        return as_items([rows[identifier] for identifier in ids.tolist()], self.n_bits)

    def search(self, queries: ArrayLike, k: int, where: Where | None = None) -> Neighbours:
        """Return the k nearest items of each query; fewer columns if fewer are admitted.

        Codes are compared by Hamming distance, embeddings (floats) by asymmetric distance.
        """
        queries = checked_queries(queries, self.n_bits)
        check_k(k)
        condition = filter_expression(where)
        if k > MAX_ROWS or len(queries) == 0:
            k = min(k, self._count(condition))
        if k > MAX_ROWS:
            raise InputError(f"k={k}; Milvus returns at most {MAX_ROWS} neighbours of a query")
        dtype = np.int64 if queries.dtype == np.uint8 else np.float64
        if k == 0 or len(queries) == 0:
            ids = np.empty((len(queries), k), dtype=np.int64)
            return Neighbours(ids=ids, distances=ids.astype(dtype))
        return as_neighbours(self._nearest(queries, k, condition, {}), dtype)

    def within(
        self, queries: ArrayLike, radius: int, where: Where | None = None, k: int | None = None
    ) -> list[Ball]:
        """Return the items at most `radius` bits away from each query, at most the k nearest."""
        queries = checked_queries(queries, self.n_bits)
        check_radius(radius, self.n_bits)
        if k is not None:
            check_k(k)
        n_rows = MAX_ROWS if k is None else min(k, MAX_ROWS)
        # Milvus's radius is exclusive.
        found = self._nearest(queries, n_rows, filter_expression(where), {"radius": radius + 1})
        if (k is None or k > MAX_ROWS) and any(len(ids) == MAX_ROWS for ids, _ in found):
            raise InputError(
                f"{MAX_ROWS} items or more are within {radius} bits, and Milvus returns no more; "
                "ask for a smaller radius"
            )
        return [Ball(*row) for row in found]

    def duplicates(self, radius: int, where: Where | None = None) -> DuplicateGroups:
        """Return the groups of items that steps of at most `radius` bits connect; exact.

        Milvus does not group: ids and codes, but no metadata, are read into memory.
        """
        check_radius(radius, self.n_bits)
        ids, words = [np.empty(0, dtype=np.int64)], [as_words(row_codes([], self.n_bits))]
        for rows in self._pages(filter_expression(where), ["id", "code"], MAX_ROWS):
            ids.append(np.array([row["id"] for row in rows], dtype=np.int64))
            words.append(as_words(row_codes(rows, self.n_bits)))
        table = CodeTable(self.n_bits, np.concatenate(ids), np.concatenate(words, axis=1))
        del ids, words
        return duplicate_groups(table, radius)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """Iterate over all items in the order of ids, in batches."""
        for rows in self._pages("", ALL_FIELDS, batch_size):
            yield as_items(rows, self.n_bits)

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Return id and stamp of every item that was indexed from a source, by path."""
        condition = f"source == {json.dumps(source, ensure_ascii=False)}"
        return {
            row["path"]: (row["id"], row["metadata"]["stamp"])
            for rows in self._pages(condition, ["id", "path", "metadata"], MAX_ROWS // 4)
            for row in rows
        }

    def next_id(self) -> int:
        """Return an id above all ids in use."""
        return checked_next_id(self._highest_id() + 1)

    def encoder(self) -> bytes:
        """Return the file of the encoder that computed the codes."""
        return read_encoder(self._server, self.collection)

    def count(self, where: Where) -> int:
        """Return the number of items that a filter admits."""
        return self._count(filter_expression(where))

    def sample(self, n: int, *, seed: int, where: Where | None = None) -> Items:
        """Return n random items, or all if there are fewer, in the order of ids."""
        rng, condition = np.random.default_rng(seed), filter_expression(where)
        n_items, stored = min(n, self._count(condition)), set()
        if not condition:
            # Ids usually count from 0 with few gaps, so random ids mostly exist.
            highest = max(self._highest_id(), 0)
            guesses = rng.integers(0, highest, min(4 * n, MAX_ROWS), endpoint=True)
            stored = self._stored(np.unique(guesses))
        if len(stored) < n_items:
            pages = self._pages(condition, ["id"], MAX_ROWS)
            stored = {row["id"] for rows in pages for row in rows}
        ids = rng.choice(sorted(stored), min(n_items, len(stored)), replace=False)
        rows = self._fetch(np.sort(ids.astype(np.int64)), ALL_FIELDS)
        return as_items(sorted(rows, key=lambda row: row["id"]), self.n_bits)

    def label_counts(self) -> dict[str, int]:
        """Return the number of items with each label; reads the metadata of all items."""
        counts: Counter[str] = Counter()
        for rows in self._pages("", ["id", "metadata"], MAX_ROWS // 4):
            for row in rows:
                counts.update(set(row["metadata"]["labels"]))
        return dict(sorted(counts.items()))

    def version(self) -> None:
        """Return None: Milvus does not count changes."""

    def stats(self) -> IndexStats:
        return IndexStats(self.name, self.n_bits, len(self))

    def close(self) -> None:
        self._server.close()

    def _highest_id(self) -> int:
        # Ids count from 0: only as many ids as items were removed lie beyond the count.
        highest = len(self) - 1
        for rows in self._pages(f"id > {highest}", ["id"], MAX_ROWS):
            highest = rows[-1]["id"]
        return highest

    def _create(self, n_bits: int, encoder: bytes | None) -> None:
        check_n_bits(n_bits)
        if encoder is not None:
            write_encoder(self._server, self.collection, encoder)
        self._server.create(
            self.collection,
            description=collection_description(n_bits),
            integers=["id"],
            strings={"path": 8192, "source": 8192},
            documents=["metadata"],
            vectors={"code": 8 * code_bytes(n_bits)},
        )
        self._server.make_searchable(self.collection, self.index_type, "code")

    def _check_index_type(self) -> None:
        """Raise if the collection was created by the other engine, which must also search it."""
        created = self._server.index_type(self.collection)
        if created in (None, self.index_type):
            return
        url = f"{self._server.address}/{self.collection}"
        engines = {kind.index_type: kind.name for kind in (MilvusIndex, MilvusInvertedIndex)}
        if created not in engines:
            raise InputError(
                f"the collection {self.collection!r} is indexed as {created}, which orbithash does "
                "not search; give another name"
            )
        raise InputError(
            f"{self.name}:{url} was made as {engines[created]}; open it as {engines[created]}:{url}"
        )

    def _count(self, condition: str) -> int:
        rows = self._server.query(self.collection, condition, ["count(*)"])
        return int(rows[0]["count(*)"])

    def _stored(self, ids: Int64[np.ndarray, " n"]) -> set[int]:
        return {row["id"] for row in self._fetch(ids, ["id"])}

    def _fetch(
        self, ids: Int64[np.ndarray, " n"], fields: list[str], level: str = "Strong"
    ) -> Iterator[Any]:
        for start in range(0, len(ids), BATCH_ROWS):
            batch = ids[start : start + BATCH_ROWS].tolist()
            yield from self._server.query(self.collection, f"id in {batch}", fields, level=level)

    def _pages(self, condition: str, fields: list[str], size: int) -> Iterator[list[Any]]:
        """Iterate over the rows that meet a condition; Milvus returns them in the order of ids."""
        rows = self._server.query(self.collection, condition, fields, limit=min(size, MAX_ROWS))
        while rows:
            yield rows
            after = f"id > {rows[-1]['id']}"
            both = f"({condition}) and {after}" if condition else after
            rows = self._server.query(self.collection, both, fields, limit=min(size, MAX_ROWS))

    def _nearest(
        self, queries: np.ndarray, k: int, condition: str, parameters: dict[str, Any]
    ) -> list[Row]:
        """Return ids and distances of each query's k nearest items, or all if there are fewer."""
        if queries.dtype != np.uint8:
            return self._nearest_asymmetric(queries, k, condition, parameters)
        return [
            sorted_hits(hits)
            for start in range(0, len(queries), MAX_ROWS)
            for hits in self._hits(queries[start : start + MAX_ROWS], k, condition, parameters)
        ]

    def _hits(
        self, codes: np.ndarray, k: int, condition: str, parameters: dict[str, Any], *fields: str
    ) -> Any:
        """Request the nearest items of each code by Hamming distance, with some of their fields."""
        return self._server.call(
            "search",
            self.collection,
            data=[code.tobytes() for code in codes],
            anns_field="code",
            filter=condition,
            limit=k,
            output_fields=list(fields),
            search_params={"metric_type": "HAMMING", "params": self.parameters() | parameters},
            consistency_level=self._level,
        )

    def _nearest_asymmetric(
        self,
        embeddings: Float[np.ndarray, "queries bits"],
        k: int,
        condition: str,
        parameters: dict[str, Any],
    ) -> list[Row]:
        def fetch(codes: UInt8[np.ndarray, "n bytes"], n_rows: int) -> Iterator[CodeTable]:
            step = max(1, MAX_ROWS // n_rows)  # codes are returned too: fewer queries at once
            for start in range(0, len(codes), step):
                batch = codes[start : start + step]
                for hits in self._hits(batch, n_rows, condition, parameters, "code"):
                    yield as_table(hits, self.n_bits)

        found, n_unproven = nearest_candidates(
            embeddings, k, fetch, first=max(FIRST_ROWS, 4 * k), most=MAX_ROWS
        )
        if n_unproven:
            logger.warning(
                "%d of %d embeddings were compared only with the %d codes nearest by Hamming "
                "distance, the most that Milvus returns; nearer items may be missing",
                *(n_unproven, len(embeddings), MAX_ROWS),
            )
        return found

    def parameters(self) -> dict[str, Any]:
        """Return the search parameters of Milvus's index."""
        return {}


class MilvusInvertedIndex(MilvusIndex):
    """A collection of a Milvus server that is searched by clusters; approximate."""

    name = "milvus-ivf"
    index_type = "BIN_IVF_FLAT"

    def parameters(self) -> dict[str, Any]:
        return {"nprobe": 32}
