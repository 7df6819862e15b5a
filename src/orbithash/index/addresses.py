"""Opening and creating an index by its address: a folder, or a collection of a Milvus server."""

from pathlib import Path
from typing import NamedTuple

from orbithash.errors import InputError
from orbithash.index.base import Index
from orbithash.index.memory import MemoryIndex
from orbithash.index.milvus.milvus_index import CONSISTENCY_LEVELS, MilvusIndex
from orbithash.index.milvus.server import MilvusServer
from orbithash.index.store.copying import create_store
from orbithash.index.store.stored_index import StoredIndex


def open_index(address: str | Path, *, engine: str = "exact") -> Index:
    """Open the index in a folder, or in Milvus, written `milvus:http://HOST:19530/NAME`.

    `engine` is how the codes of a folder are searched; Milvus searches its own codes.
    """
    remote = remote_place(address)
    if remote is not None:
        if engine != "exact":
            raise InputError(
                f"engine {engine!r} is for folders, and {address} is searched by Milvus; "
                "leave the engine out"
            )
        return server_engines()[remote.engine](
            server=remote.server, collection=remote.collection, consistency=remote.consistency
        )
    if engine not in folder_engines():
        raise InputError(
            f"no engine {engine!r} searches folders; choose one of {', '.join(folder_engines())}"
        )
    return StoredIndex(Path(address), folder_engines()[engine])


def open_folder(address: str | Path, purpose: str, *, unchecked: bool = False) -> StoredIndex:
    """Open the index in a folder, for a `purpose` that is none for servers.

    `unchecked` opens it even if parts of it are missing, for `check` and `undamaged`.
    """
    if remote_place(address) is not None:
        raise InputError(f"{purpose} is for folders; {address} is in the care of its server")
    return StoredIndex(Path(address), folder_engines()["exact"], unchecked=unchecked)


def create_index(address: str | Path, n_bits: int, *, encoder: bytes | None = None) -> Index:
    """Create an empty index; `encoder` is the file of the encoder that computes its codes.

    In Milvus, `milvus-ivf:http://…` creates an index that is searched by clusters, approximately.
    """
    remote = remote_place(address)
    if remote is None:
        create_store(Path(address), n_bits, encoder=encoder)
        return open_index(address)
    if index_exists(address):
        raise InputError(f"{address} exists; open it, or give the new index another name")
    return server_engines()[remote.engine](
        n_bits,
        server=remote.server,
        collection=remote.collection,
        encoder=encoder,
        consistency=remote.consistency,
    )


def index_exists(address: str | Path) -> bool:
    """Return whether the address is in use, even if by something that is not an index."""
    remote = remote_place(address)
    if remote is None:
        return Path(address).exists()
    return MilvusServer(remote.server).has(remote.collection)


class RemotePlace(NamedTuple):
    """A collection of a server, the engine that searches it, and which writes a search sees."""

    engine: str
    server: str
    collection: str
    consistency: str = "strong"


def remote_place(address: str | Path) -> RemotePlace | None:
    """Parse the address of a collection; None if the address is a folder.

    >>> remote_place("milvus:http://localhost:19530/birds?consistency=bounded")[1:]
    ('http://localhost:19530', 'birds', 'bounded')
    """
    engine, colon, url = str(address).partition(":")
    if not colon or engine not in server_engines():
        return None
    url, question_mark, option = url.partition("?")
    server, _, collection = url.rpartition("/")
    scheme, _, host = server.partition("://")
    if scheme not in ("http", "https") or not host or not collection:
        raise InputError(f"{address} names no collection; write {engine}:http://HOST:19530/NAME")
    if not (collection.isascii() and collection.isidentifier()):
        raise InputError(
            f"{collection!r} is not a valid collection name; use letters, digits and underscores"
        )
    if not question_mark:
        return RemotePlace(engine, server, collection)
    name, _, consistency = option.partition("=")
    if name != "consistency" or consistency not in CONSISTENCY_LEVELS:
        raise InputError(
            f"got ?{option} after the collection; write ?consistency= and one of "
            f"{', '.join(CONSISTENCY_LEVELS)}, or nothing"
        )
    return RemotePlace(engine, server, collection, consistency)


def folder_engines() -> dict[str, type[MemoryIndex]]:
    """Return the engines that search the codes of a folder, in memory."""
    from orbithash.index import ENGINES  # here, because the package imports this module

    return {name: kind for name, kind in ENGINES.items() if issubclass(kind, MemoryIndex)}


def server_engines() -> dict[str, type[MilvusIndex]]:
    """Return the engines that store and search codes on a server; their names start addresses."""
    from orbithash.index import ENGINES

    return {name: kind for name, kind in ENGINES.items() if issubclass(kind, MilvusIndex)}
