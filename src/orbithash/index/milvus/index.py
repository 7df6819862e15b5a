"""Milvus: codes and metadata in a collection of a server or cluster.

Writes are upserts by id, so that one that is repeated after a failure changes nothing, and reads
wait for all writes before them (consistency level "Strong").
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64

from orbithash.codes import check_codes, check_n_bits, code_bytes
from orbithash.errors import CodeLengthError, IdInUseError, InputError, MissingExtraError
from orbithash.index.base import (
    NOTHING_KNOWN,
    Ball,
    ClosedAfterwards,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
)
from orbithash.index.checks import (
    check_k,
    check_radius,
    checked_ids,
    checked_items,
    free_id,
    not_there,
)
from orbithash.index.milvus.encoder_parts import read_encoder, write_encoder
from orbithash.index.milvus.server import MilvusServer

MOST = 16384  # rows that Milvus returns at once, and queries that it takes
BATCH = 2000  # rows that are sent at once
FORMAT = 1
ALL_FIELDS = ["id", "code", "path", "source", "metadata"]


class MilvusIndex(ClosedAfterwards):
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
    ) -> None:
        """Open a collection; with `n_bits`, make it if it is not there."""
        self._server = MilvusServer(server, import_pymilvus())
        self.collection = collection
        if not self._server.has(collection):
            if n_bits is None:
                raise InputError(
                    f"there is no collection {collection!r} at {server}; make it with "
                    f"orbithash index … --out milvus:{server}/{collection}"
                )
            self._create(n_bits, encoder)
        self.n_bits = self._described()
        if n_bits is not None and n_bits != self.n_bits:
            raise CodeLengthError(
                f"{collection!r} exists, and its",
                got=code_bytes(self.n_bits),
                expected=code_bytes(n_bits),
                n_bits=n_bits,
            )
        self._check_kind()
        self._server.make_searchable(collection, self.index_type, "code")

    def __len__(self) -> int:
        return self._count("")

    def add(
        self, ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items under ids that are not in use yet."""
        ids = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        if used := self._stored(ids):
            raise IdInUseError(next(i for i in ids.tolist() if i in used))
        self.update(ids, codes, metadata)

    def update(
        self, ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items in the place of those with the same ids, if there are any."""
        ids = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        for start in range(0, len(ids), BATCH):
            rows = [
                as_row(
                    int(ids[i]),
                    codes[i].tobytes(),
                    NOTHING_KNOWN if metadata is None else metadata[i],
                )
                for i in range(start, min(start + BATCH, len(ids)))
            ]
            self._server.call("upsert", self.collection, rows)

    def remove(self, ids: np.ndarray) -> int:
        """Forget these items; those that are not there do not matter. Returns how many were."""
        used = sorted(self._stored(checked_ids(ids)))
        for start in range(0, len(used), BATCH):
            self._server.call("delete", self.collection, ids=used[start : start + BATCH])
        return len(used)

    def get(self, ids: np.ndarray) -> Items:
        """These items, in the order asked for."""
        ids = checked_ids(ids)
        rows = {row["id"]: row for row in self._rows_of(ids, ALL_FIELDS)}
        for identifier in ids.tolist():
            if identifier not in rows:
                raise not_there(identifier)
        return self._items([rows[identifier] for identifier in ids.tolist()])

    def search(self, codes: np.ndarray, k: int, where: Where | None = None) -> Neighbours:
        """The k nearest items of each query; fewer columns when fewer are stored or admitted."""
        check_codes(codes, self.n_bits)
        check_k(k)
        condition = expression(where)
        if k > MOST or len(codes) == 0:
            k = min(k, self._count(condition))
        if k > MOST:
            raise InputError(f"Milvus returns at most {MOST} neighbours of a query, not {k}")
        if k == 0 or len(codes) == 0:
            nothing = np.empty((len(codes), k), dtype=np.int64)
            return Neighbours(ids=nothing, distances=nothing.copy())
        found = self._search(codes, k, condition, {})
        most = max(len(ball.ids) for ball in found)
        ids, distances = (np.full((len(codes), most), -1, dtype=np.int64) for _ in range(2))
        for query, ball in enumerate(found):
            ids[query, : len(ball.ids)] = ball.ids
            distances[query, : len(ball.ids)] = ball.distances
        return Neighbours(ids=ids, distances=distances)

    def within(self, codes: np.ndarray, radius: int, where: Where | None = None) -> list[Ball]:
        """The items at most `radius` bits away from each query."""
        check_codes(codes, self.n_bits)
        check_radius(radius)
        # Milvus's radius is the first distance that is too far.
        balls = self._search(codes, MOST, expression(where), {"radius": radius + 1})
        if any(len(ball.ids) == MOST for ball in balls):
            raise InputError(
                f"{MOST} items or more are within {radius} bits, and Milvus returns no more; "
                "ask for a smaller radius"
            )
        return balls

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """All items in the order of ids, some at a time."""
        for rows in self._pages("", ALL_FIELDS, batch_size):
            yield self._items(rows)

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Id and stamp of everything that was indexed from a source, by path."""
        condition = f"source == {json.dumps(source, ensure_ascii=False)}"
        return {
            row["path"]: (row["id"], row["metadata"]["stamp"])
            for rows in self._pages(condition, ["id", "path", "metadata"], MOST // 4)
            for row in rows
        }

    def next_id(self) -> int:
        """An id that is not in use, and neither is any above it."""
        return free_id(self._highest_id() + 1)

    def encoder(self) -> bytes:
        """The file of the encoder that made the codes, as it was given."""
        return read_encoder(self._server, self.collection)

    def sample(self, n: int, *, seed: int) -> Items:
        """So many items chosen at random, or all of them, in the order of ids."""
        rng = np.random.default_rng(seed)
        wanted, highest = min(n, len(self)), self._highest_id()
        # Ids are numbers from 0 with few gaps, so guesses mostly hit.
        guesses = rng.integers(0, max(highest, 0), min(4 * n, MOST), endpoint=True)
        there = self._stored(np.unique(guesses))
        if len(there) < wanted:
            there = {row["id"] for rows in self._pages("", ["id"], MOST) for row in rows}
        chosen = rng.choice(sorted(there), min(wanted, len(there)), replace=False)
        rows = self._rows_of(np.sort(chosen.astype(np.int64)), ALL_FIELDS)
        return self._items(sorted(rows, key=lambda row: row["id"]))

    def label_counts(self) -> dict[str, int]:
        """How many items have each label; reads the metadata of all of them."""
        counts: Counter[str] = Counter()
        for rows in self._pages("", ["id", "metadata"], MOST // 4):
            for row in rows:
                counts.update(set(row["metadata"]["labels"]))
        return dict(sorted(counts.items()))

    def stats(self) -> IndexStats:
        return IndexStats(self.name, self.n_bits, len(self))

    def close(self) -> None:
        self._server.close()

    def _highest_id(self) -> int:
        # Items are numbered from 0, so only as many ids as items were removed are beyond the count.
        highest = len(self) - 1
        for rows in self._pages(f"id > {highest}", ["id"], MOST):
            highest = rows[-1]["id"]
        return highest

    def _create(self, n_bits: int, encoder: bytes | None) -> None:
        check_n_bits(n_bits)
        if encoder is not None:
            write_encoder(self._server, self.collection, encoder)
        self._server.create(
            self.collection,
            description=json.dumps({"orbithash": FORMAT, "n_bits": int(n_bits)}),
            integers=["id"],
            strings={"path": 8192, "source": 8192},
            documents=["metadata"],
            vectors={"code": 8 * code_bytes(n_bits)},
        )
        self._server.make_searchable(self.collection, self.index_type, "code")

    def _described(self) -> int:
        """The number of bits that the collection's description says."""
        try:
            facts = json.loads(self._server.description(self.collection))
            version, n_bits = facts["orbithash"], int(facts["n_bits"])
        except (ValueError, LookupError, TypeError):
            raise InputError(
                f"the collection {self.collection!r} was not made by orbithash; give another name"
            ) from None
        if version != FORMAT:
            raise InputError(
                f"the collection {self.collection!r} has format {version}, and this version of "
                f"orbithash reads format {FORMAT}; use the version that wrote it"
            )
        return n_bits

    def _check_kind(self) -> None:
        """Raise if the collection was made by the other engine, which must search it too."""
        made = self._server.index_type(self.collection)
        if made in (None, self.index_type):
            return
        place = f"{self._server.address}/{self.collection}"
        kinds = {kind.index_type: kind.name for kind in (MilvusIndex, MilvusInvertedIndex)}
        if made not in kinds:
            raise InputError(
                f"the collection {self.collection!r} is indexed as {made}, which orbithash does "
                "not search; give another name"
            )
        raise InputError(
            f"{self.name}:{place} was made as {kinds[made]}; open it as {kinds[made]}:{place}"
        )

    def _count(self, condition: str) -> int:
        rows = self._server.query(self.collection, condition, ["count(*)"])
        return int(rows[0]["count(*)"])

    def _stored(self, ids: Int64[np.ndarray, " n"]) -> set[int]:
        return {row["id"] for row in self._rows_of(ids, ["id"])}

    def _rows_of(self, ids: Int64[np.ndarray, " n"], fields: list[str]) -> Iterator[Any]:
        for start in range(0, len(ids), BATCH):
            wanted = ids[start : start + BATCH].tolist()
            yield from self._server.query(self.collection, f"id in {wanted}", fields)

    def _pages(self, condition: str, fields: list[str], size: int) -> Iterator[list[Any]]:
        """All rows that meet a condition in the order of ids, which is Milvus's own."""
        rows = self._server.query(self.collection, condition, fields, limit=min(size, MOST))
        while rows:
            yield rows
            after = f"id > {rows[-1]['id']}"
            both = f"({condition}) and {after}" if condition else after
            rows = self._server.query(self.collection, both, fields, limit=min(size, MOST))

    def _search(
        self, codes: np.ndarray, k: int, condition: str, parameters: dict[str, Any]
    ) -> list[Ball]:
        balls = []
        for start in range(0, len(codes), MOST):
            found = self._server.call(
                "search",
                self.collection,
                data=[code.tobytes() for code in codes[start : start + MOST]],
                anns_field="code",
                filter=condition,
                limit=k,
                search_params={"metric_type": "HAMMING", "params": self.parameters() | parameters},
                consistency_level="Strong",
            )
            balls += [ball_of(hits) for hits in found]
        return balls

    def parameters(self) -> dict[str, Any]:
        """What Milvus's index wants to know of a search."""
        return {}

    def _items(self, rows: list[Any]) -> Items:
        n_bytes = code_bytes(self.n_bits)
        codes = np.frombuffer(b"".join(row["code"][0] for row in rows), dtype=np.uint8)
        return Items(
            np.array([row["id"] for row in rows], dtype=np.int64),
            codes.reshape(len(rows), n_bytes),
            tuple(metadata_of(row) for row in rows),
        )


class MilvusInvertedIndex(MilvusIndex):
    """A collection of a Milvus server whose codes are searched by clusters; approximate."""

    name = "milvus-ivf"
    index_type = "BIN_IVF_FLAT"

    def parameters(self) -> dict[str, Any]:
        return {"nprobe": 32}


def as_row(identifier: int, code: bytes, metadata: Metadata) -> dict[str, Any]:
    return {
        "id": identifier,
        "code": code,
        "path": metadata.path,
        "source": metadata.source,
        "metadata": {
            "labels": list(metadata.labels),
            "stamp": metadata.stamp,
            "fields": dict(metadata.fields),
        },
    }


def metadata_of(row: Any) -> Metadata:
    more = row["metadata"]
    return Metadata(
        path=row["path"],
        labels=tuple(more["labels"]),
        source=row["source"],
        stamp=more["stamp"],
        fields=more["fields"],
    )


def ball_of(hits: Any) -> Ball:
    """What one query found, equal distances in the order of ids."""
    pairs = sorted((round(hit["distance"]), hit["id"]) for hit in hits)
    distances, ids = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    return Ball(ids=ids, distances=distances)


def expression(where: Where | None) -> str:
    """A filter in Milvus's language, whose strings are written as in JSON.

    >>> expression(Where(labels=("dog",), fields={"year": 2020}))
    'json_contains_any(metadata["labels"], ["dog"]) and metadata["fields"]["year"] == 2020'
    """
    if where is None:
        return ""
    conditions = []
    if where.labels:
        labels = json.dumps(where.labels, ensure_ascii=False)
        conditions.append(f'json_contains_any(metadata["labels"], {labels})')
    for name, value in where.fields.items():
        key, literal = (json.dumps(part, ensure_ascii=False) for part in (name, value))
        conditions.append(f'metadata["fields"][{key}] == {literal}')
    return " and ".join(conditions)


def collection_exists(server: str, collection: str) -> bool:
    return MilvusServer(server, import_pymilvus()).has(collection)


def import_pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError:
        raise MissingExtraError("milvus") from None
    # It writes every error to the terminal, with a traceback, besides raising it.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    return pymilvus
