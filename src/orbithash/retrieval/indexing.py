"""Bring an index up to date with a source: encode new and changed items, report missing ones."""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from orbithash.data import ImageFiles, ImageSource
from orbithash.data.sources import absolute_source
from orbithash.encoders import Data, Encoded, Encoder, Progress, no_progress
from orbithash.encoders.items import item_paths, item_stamp
from orbithash.errors import InputError, PathInUseError
from orbithash.files import absolute_name
from orbithash.index import Index, Metadata, add_under_new_ids
from orbithash.index.milvus.milvus_index import MilvusIndex

BATCH = 1024  # items that are encoded and then stored together


@dataclass(frozen=True)
class IndexReport:
    """How many items of a source were added, replaced or kept, and which are missing."""

    new: int
    changed: int
    unchanged: int
    gone: dict[str, int]  # id by path of stored items that the source certainly no longer has
    pruned: bool  # whether these were removed from the index
    unreadable: dict[str, str]  # reason by path; codes stored for them earlier are kept


def index_source(
    index: Index,
    encoder: Encoder,
    data: Data,
    *,
    source: str,
    prune: bool = False,
    progress: Progress = no_progress,
    ray: str | None = None,
) -> IndexReport:
    """Encode and store the items of a source that are new or changed.

    `source` names their origin; items from other sources are not touched. Each batch is stored as
    soon as it is encoded, so that a call after an interruption continues from there. `ray` is the
    address of a Ray cluster that encodes; its workers store in Milvus themselves.

    `prune` removes what is gone. If some of the missing items may still be there, it raises an
    error before anything is changed.
    """
    items = source_items(data, source)
    known = index.known(source)
    present = {item.path for item in items if item.stamp != "missing"}
    gone = {path: identifier for path, (identifier, _) in known.items() if path not in present}
    doubtful = perhaps_there(gone, data)
    if prune and doubtful:
        path, reason = next(iter(doubtful.items()))
        raise InputError(
            f"cannot tell whether {len(doubtful)} items are gone, for example {path}: {reason}; "
            "nothing was removed: make it readable, or leave --prune out"
        )
    gone = {path: identifier for path, identifier in gone.items() if path not in doubtful}
    rows = [row for row, item in enumerate(items) if is_new_or_changed(item, known)]
    index.remove([])  # raises now, and not after minutes of encoding, if the index is read-only
    if ray is not None and isinstance(index, MilvusIndex):
        from orbithash.retrieval.milvus_workers import store_by_workers

        new, changed, unreadable = store_by_workers(
            *(index, encoder, data, items, rows, known, progress), address=ray
        )
    else:
        embedded = embed_rows(encoder, data, np.array(rows, dtype=np.int64), progress, ray)
        new, changed, unreadable = store_batches(index, embedded, items, known, source)
    if prune and gone:
        index.remove(np.array(list(gone.values()), dtype=np.int64))
    unchanged = sum(known.get(item.path, (0, ""))[1] == item.stamp for item in items)
    return IndexReport(new, changed, unchanged, gone, prune, doubtful | unreadable)


def embed_rows(
    encoder: Encoder, data: Data, rows: Int64[np.ndarray, " n"], progress: Progress, ray: str | None
) -> Iterator[Encoded]:
    """Embed the rows in batches, here or on a cluster."""
    if ray is not None:
        from orbithash.encoders.on_ray import embed_on_ray, ray_batches

        return embed_on_ray(encoder, data, ray_batches(rows), progress, address=ray)
    batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    return encoder.embed_batches(data, batches, progress)


def store_batches(
    index: Index,
    batches: Iterator[Encoded],
    items: Sequence[Metadata],
    known: dict[str, tuple[int, str]],
    source: str,
) -> tuple[int, int, dict[str, str]]:
    """Return how many items were added and replaced, and the reason for each unreadable one."""
    count, stored, new, changed = len(index), known, 0, 0
    unreadable: dict[str, str] = {}
    for encoded in batches:
        if len(index) != count + new:  # another process adds, perhaps from the same source
            count, stored = len(index) - new, index.known(source)
        codes = encoded.codes
        while True:
            is_known = np.array([items[row].path in stored for row in encoded.rows], dtype=bool)
            added = [items[row] for row in encoded.rows[~is_known]]
            try:
                add_under_new_ids(index, codes[~is_known], added)
                break
            except PathInUseError:  # another process has stored some of them just now
                stored = index.known(source)
        new += len(added)
        replaced = [items[row] for row in encoded.rows[is_known]]
        ids = np.array([stored[item.path][0] for item in replaced], dtype=np.int64)
        index.update(ids, codes[is_known], replaced)
        changed += len(replaced)
        unreadable |= encoded.unreadable
    return new, changed, unreadable


def perhaps_there(gone: Iterable[str], data: Data) -> dict[str, str]:
    """Return those of the missing paths that may still be there, with the reason.

    A file is gone if its folder was listed and it was not in it, or if a table does not name it any
    more. It may be there if the folder cannot be listed, or if a table names it and its folder is
    missing too, as when a disk is not mounted.
    """
    if not isinstance(data, ImageFiles):
        return {}
    root = Path(absolute_name(data.root))
    unlisted = {str(root / path): reason for path, reason in data.unlisted.items()}
    listed = set(item_paths(data)) if gone else set()

    @cache
    def reason_of(folder: Path, *, is_named: bool) -> str:
        for each in (folder, *folder.parents):
            if str(each) in unlisted:
                return f"{each}: {unlisted[str(each)]}"
        return f"there is no folder {folder}" if is_named and not folder.is_dir() else ""

    reasons = {
        path: unlisted.get(path) or reason_of(Path(path).parent, is_named=path in listed)
        for path in gone
    }
    return {path: reason for path, reason in reasons.items() if reason}


def source_identity(source: Any, data: Data) -> str:
    """Return the name by which an index knows a source: its path, or a digest of data in memory.

    Without the digest, a second dataset of the same type would pass for the first.
    """
    if isinstance(source, str | Path):
        return absolute_source(source)
    if isinstance(data, ImageFiles):
        return absolute_name(data.root)
    digest = hashlib.blake2b(digest_size=8)
    if isinstance(data, ImageSource):
        for row in range(len(data)):
            digest.update(data.stamp(row).encode())
        return f"{data} {digest.hexdigest()}"
    digest.update(data.features.tobytes())
    return f"features {digest.hexdigest()}"


def is_new_or_changed(item: Metadata, known: dict[str, tuple[int, str]]) -> bool:
    if item.path not in known:
        return True
    # A file that is listed but missing is gone, not changed.
    return item.stamp not in ("missing", known[item.path][1])


def source_items(data: Data, source: str) -> list[Metadata]:
    """Return the metadata of each item, with a stamp that differs when the item has changed."""
    paths = item_paths(data)
    stamps = [item_stamp(data, row) for row in range(len(data))]
    if twice := [path for path, times in Counter(paths).items() if times > 1]:
        raise InputError(f"{source} lists {twice[0]} twice; name each item once")
    return [
        Metadata(path, names, source, with_labels(stamp, names))
        for path, names, stamp in zip(paths, label_names(data), stamps, strict=True)
    ]


def with_labels(stamp: str, labels: tuple[str, ...]) -> str:
    """Return a stamp that also differs when the labels have changed."""
    if stamp == "missing":
        return stamp
    return f"{stamp} {zlib.crc32(repr(labels).encode()):08x}"


def label_names(data: Data) -> list[tuple[str, ...]]:
    """Return the names of each item's labels, or their numbers where the source has no names."""
    if data.labels is None:
        return [()] * len(data)
    if data.labels.ndim == 2:
        names = data.classes or tuple(map(str, range(data.labels.shape[1])))
        return [tuple(names[column] for column in np.flatnonzero(row)) for row in data.labels]
    if not data.classes:
        return [(str(label),) for label in data.labels]
    # An empty name is the class of images outside any class folder.
    return [(data.classes[label],) if data.classes[label] else () for label in data.labels]
