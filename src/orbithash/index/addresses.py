"""Where an index is: a folder, or a collection of a Milvus server."""

from pathlib import Path

from orbithash.errors import InputError
from orbithash.index.base import Index
from orbithash.index.engines import LOCAL, REMOTE
from orbithash.index.milvus import collection_exists
from orbithash.index.store import StoredIndex, create_store


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
