"""Where an index is: a folder, or a collection of a Milvus server; and the engines by name."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import IdInUseError, InputError, NoIdsLeftError, StorageError
from orbithash.index.base import Index, Metadata
from orbithash.index.checks import LARGEST_ID
from orbithash.index.faiss import FaissGraphIndex, FaissIndex, FaissInvertedIndex
from orbithash.index.memory import ExactIndex, MemoryIndex
from orbithash.index.milvus.index import MilvusIndex, MilvusInvertedIndex, collection_exists
from orbithash.index.multi_index import MultiIndex
from orbithash.index.store.index import StoredIndex, create_store

# What can search the codes of a folder.
LOCAL: dict[str, type[MemoryIndex]] = {
    "exact": ExactIndex,
    "exact-mih": MultiIndex,
    "faiss": FaissIndex,
    "faiss-ivf": FaissInvertedIndex,
    "faiss-hnsw": FaissGraphIndex,
}
# What stores and searches on its own; its name opens an address.
REMOTE: dict[str, type[MilvusIndex]] = {"milvus": MilvusIndex, "milvus-ivf": MilvusInvertedIndex}

ENGINES: dict[str, type[MemoryIndex] | type[MilvusIndex]] = {**LOCAL, **REMOTE}


ATTEMPTS = 20  # each fails only if another process has added between a look and a write


def add_under_new_ids(
    index: Index, codes: UInt8[np.ndarray, "n bytes"], metadata: Sequence[Metadata]
) -> Int64[np.ndarray, " n"]:
    """Store items together under ids that were not in use, and return them."""
    if len(codes) == 0:
        return np.empty(0, dtype=np.int64)
    for _ in range(ATTEMPTS):
        first = index.next_id()
        if first > LARGEST_ID - len(codes):
            raise NoIdsLeftError
        ids = np.arange(first, first + len(codes), dtype=np.int64)
        try:
            index.add(ids, codes, metadata)
        except IdInUseError:
            continue
        return ids
    raise StorageError("other processes keep adding to this index; try again when they are done")


def open_index(address: str | Path, *, engine: str = "exact") -> Index:
    """The index in a folder, or in Milvus, written `milvus:http://HOST:19530/NAME`.

    `engine` says how the codes of a folder are searched; Milvus searches its own.
    """
    remote = remote_place(address)
    if remote is not None:
        kind, server, collection = remote
        if engine != "exact":
            raise InputError(f"engine {engine!r} is for folders; Milvus searches by itself")
        return REMOTE[kind](server=server, collection=collection)
    if engine not in LOCAL:
        raise InputError(f"no engine {engine!r} searches folders; choose of {', '.join(LOCAL)}")
    return StoredIndex(Path(address), LOCAL[engine])


def create_index(address: str | Path, n_bits: int, *, encoder: bytes | None = None) -> Index:
    """A new, empty index; `encoder` is the file of the encoder whose codes it will hold.

    In Milvus, `milvus-ivf:http://…` makes an index that is searched by clusters, approximately.
    """
    remote = remote_place(address)
    if remote is None:
        create_store(Path(address), n_bits, encoder=encoder)
        return open_index(address)
    kind, server, collection = remote
    if index_exists(address):
        raise InputError(f"{address} exists; open it, or give the new index another name")
    return REMOTE[kind](n_bits, server=server, collection=collection, encoder=encoder)


def index_exists(address: str | Path) -> bool:
    """Whether there is something at the address, which may still not be an index."""
    remote = remote_place(address)
    if remote is None:
        return Path(address).exists()
    return collection_exists(*remote[1:])


def remote_place(address: str | Path) -> tuple[str, str, str] | None:
    """Engine, server and collection of an address that is no folder.

    >>> remote_place("milvus:http://localhost:19530/birds")
    ('milvus', 'http://localhost:19530', 'birds')
    """
    kind, colon, place = str(address).partition(":")
    if not colon or kind not in REMOTE:
        return None
    server, _, name = place.rpartition("/")
    scheme, _, host = server.partition("://")
    if scheme not in ("http", "https") or not host or not name:
        raise InputError(f"{address} names no collection; write {kind}:http://HOST:19530/NAME")
    if not (name.isascii() and name.isidentifier()):
        raise InputError(
            f"{name!r} is no name for a collection; use letters, digits and underscores"
        )
    return kind, server, name
