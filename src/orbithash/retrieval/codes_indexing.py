"""Store the codes of a file in an index, without an encoder: of any program, of any number."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.data.code_batches import CodesFile
from orbithash.encoders import Progress, no_progress
from orbithash.errors import InputError
from orbithash.files import absolute_name
from orbithash.index import Index, Metadata, add_under_new_ids
from orbithash.index.store.stored_index import StoredIndex
from orbithash.retrieval.indexing import IndexReport, with_labels

DESCRIBED = 1 << 15  # codes with metadata that are stored together


def index_codes(
    index: Index,
    codes: CodesFile,
    *,
    new_ids: bool = False,
    as_source: bool = False,
    progress: Progress = no_progress,
) -> IndexReport:
    """Store the codes of a file that are new or changed.

    Codes with paths or labels are known by them, as the images of a source are. Others are stored
    once for each file, all or none. They keep their ids, unless `new_ids`. With `as_source`, codes
    that `orbithash encode` wrote are stored as by `index_source`; the index must have the encoder.
    """
    if codes.n_bits != index.n_bits:
        raise InputError(
            f"{codes.file} has codes of {codes.n_bits} bits and the index of {index.n_bits}; "
            "give the new codes another index"
        )
    ids = None if new_ids else codes.ids
    if codes.paths is None and codes.labels is None:
        return index_bare(index, codes, ids, progress)
    if as_source and codes.stamps is not None:
        known_as = partial(item_of_source, codes, item_names(codes))
        report = index_described(index, codes, ids, progress, codes.source, known_as)
        return replace(report, gone={})  # the file may hold a part, and leaves out unreadable ones
    source = absolute_name(codes.file)
    return index_described(index, codes, ids, progress, source, partial(metadata_of, codes, source))


def index_bare(
    index: Index, codes: CodesFile, ids: Int64[np.ndarray, " n"] | None, progress: Progress
) -> IndexReport:
    if not isinstance(index, StoredIndex):
        for batch in reported(codes.batches(DESCRIBED), len(codes), progress):
            add_under_new_ids(index, batch)
        return report(new=len(codes))
    name, stamp = absolute_name(codes.file), file_stamp(codes.file)
    known = index.known_files().get(name)
    if known == (stamp, len(codes)):
        return report(unchanged=len(codes))
    if known is not None:
        raise InputError(
            f"{codes.file} has changed since its {known[1]} codes were stored; give the new ones "
            "another file name, or another index"
        )
    batches: Iterable[UInt8[np.ndarray, ...]] = codes.batches()
    if ids is not None and np.any(ids[1:] <= ids[:-1]):
        order = np.argsort(ids, kind="stable")  # all codes at once, to sort them
        everything = np.concatenate(list(batches))
        index.add(ids[order], everything[order])
        return report(new=len(codes))
    index.add_codes(
        len(codes), reported(batches, len(codes), progress), ids=ids, file=(name, stamp)
    )
    return report(new=len(codes))


def index_described(
    index: Index,
    codes: CodesFile,
    ids: Int64[np.ndarray, " n"] | None,
    progress: Progress,
    source: str,
    metadata: Callable[[int, bytes], Metadata],
) -> IndexReport:
    known, start = index.known(source), 0
    new = changed = unchanged = 0
    gone = {path: identifier for path, (identifier, _) in known.items()}
    for batch in reported(codes.batches(DESCRIBED), len(codes), progress):
        rows = range(start, start + len(batch))
        start += len(batch)
        items = [metadata(row, code.tobytes()) for row, code in zip(rows, batch, strict=True)]
        for item in items:
            gone.pop(item.path, None)
        is_known = np.array([item.path in known for item in items], dtype=np.bool_)
        is_same = np.array([known.get(item.path, (0, ""))[1] == item.stamp for item in items])
        added = [item for item, old in zip(items, is_known, strict=True) if not old]
        if added:
            given = None if ids is None else ids[rows.start : rows.stop][~is_known]
            index.add(given, batch[~is_known], added)
        replace = is_known & ~is_same
        replaced = [item for item, other in zip(items, replace, strict=True) if other]
        places = np.array([known[item.path][0] for item in replaced], dtype=np.int64)
        index.update(places, batch[replace], replaced)
        new, changed = new + len(added), changed + len(replaced)
        unchanged += int(is_same.sum())
    return report(new, changed, unchanged, gone)


def item_names(codes: CodesFile) -> list[str]:
    """Return the paths by which an index knows the items of the source."""
    if codes.paths is None:
        ids = range(len(codes)) if codes.ids is None else codes.ids
        return [f"row {row}" for row in ids]
    if not codes.root:
        return list(codes.paths)
    return [absolute_name(Path(codes.root) / path) for path in codes.paths]


def item_of_source(codes: CodesFile, names: list[str], row: int, code: bytes) -> Metadata:
    """Return an item's metadata as `index_source` would store it."""
    labels = codes.label_names(row)
    assert codes.stamps is not None
    return Metadata(names[row], labels, codes.source, with_labels(codes.stamps[row], labels))


def metadata_of(codes: CodesFile, source: str, row: int, code: bytes) -> Metadata:
    path = f"row {row}" if codes.paths is None else codes.paths[row]
    labels = codes.label_names(row)
    stamp = hashlib.blake2b(code, digest_size=8).hexdigest()
    return Metadata(path, labels, source, with_labels(stamp, labels))


def reported(
    batches: Iterable[UInt8[np.ndarray, "..."]],
    total: int,
    progress: Progress,
) -> Iterator[UInt8[np.ndarray, "m bytes"]]:
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        progress(done, total)


def file_stamp(file: Path) -> str:
    state = file.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def report(
    new: int = 0, changed: int = 0, unchanged: int = 0, gone: dict[str, int] | None = None
) -> IndexReport:
    return IndexReport(new, changed, unchanged, gone or {}, pruned=False, unreadable={})
