"""Bring an index up to date with a source: encode what is new or changed, notice what is gone."""

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orbithash.data import ImageFiles, LabelledFeatures, Vectors
from orbithash.encoders.encoding import encode_in_parts
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runs.fingerprints import size_and_time
from orbithash.errors import InputError
from orbithash.files import absolute_name
from orbithash.index import Index, Metadata, add_under_new_ids

BATCH = 1024  # items that are encoded and then stored together

Source = ImageFiles | LabelledFeatures | Vectors


@dataclass(frozen=True)
class IndexReport:
    """What became of each item of a source."""

    new: int
    changed: int
    unchanged: int
    gone: dict[str, int]  # the id of what the index holds and the source does not, by path
    pruned: bool  # whether the index has forgotten what is gone
    unreadable: dict[str, str]  # the reason by path; what was stored of them before, still is


def index_source(
    index: Index,
    encoder: FeatureEncoder | ImageEncoder,
    data: Source,
    *,
    source: str,
    prune: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> IndexReport:
    """Store the codes of a source's items, of those that the index does not hold as they are now.

    `source` names where they come from; items from elsewhere are left alone. Batches are stored
    as they are encoded, so that stopped in the middle, the next call goes on from there.
    """
    items = described(data, source)
    known = index.known(source)
    there = {item.path for item in items if item.stamp != "missing"}
    rows = [row for row, item in enumerate(items) if is_new_or_changed(item, known)]
    count, stored, new, changed = len(index), known, 0, 0
    unreadable: dict[str, str] = {}
    batches = [np.array(rows[i : i + BATCH], dtype=np.int64) for i in range(0, len(rows), BATCH)]
    for encoded in encode_in_parts(encoder, data, batches, progress=progress):
        if len(index) != count + new:  # another process adds, perhaps from the same source
            count, stored = len(index) - new, index.known(source)
        is_known = np.array([items[row].path in stored for row in encoded.rows], dtype=bool)
        added = [items[row] for row in encoded.rows[~is_known]]
        add_under_new_ids(index, encoded.codes[~is_known], added)
        new += len(added)
        replaced = [items[row] for row in encoded.rows[is_known]]
        ids = np.array([stored[item.path][0] for item in replaced], dtype=np.int64)
        index.update(ids, encoded.codes[is_known], replaced)
        changed += len(replaced)
        unreadable |= encoded.unreadable
    gone = {path: identifier for path, (identifier, _) in known.items() if path not in there}
    if prune and gone:
        index.remove(np.array(list(gone.values()), dtype=np.int64))
    unchanged = sum(known.get(item.path, (0, ""))[1] == item.stamp for item in items)
    return IndexReport(new, changed, unchanged, gone, prune, unreadable)


def is_new_or_changed(item: Metadata, known: dict[str, tuple[int, str]]) -> bool:
    if item.path not in known:
        return True
    # A file that is listed but missing is gone, not changed.
    return item.stamp not in ("missing", known[item.path][1])


def described(data: Source, source: str) -> list[Metadata]:
    """Each item of a source with its labels, and a stamp that differs when it has changed."""
    if isinstance(data, ImageFiles):
        paths = [absolute_name(data.root / path) for path in data.paths]
        stamps = [size_and_time(data.file(row)) for row in range(len(data))]
    else:
        paths = list(data.paths or (f"row {row}" for row in range(len(data.features))))
        stamps = [
            hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in data.features
        ]
    if twice := [path for path, times in Counter(paths).items() if times > 1]:
        raise InputError(f"{source} lists {twice[0]} twice; name each item once")
    labels = label_names(data)
    return [
        Metadata(path, names, source, stamped(stamp, names))
        for path, names, stamp in zip(paths, labels, stamps, strict=True)
    ]


def stamped(stamp: str, labels: tuple[str, ...]) -> str:
    if stamp == "missing":
        return stamp
    return f"{stamp} {zlib.crc32(repr(labels).encode()):08x}"


def label_names(data: Source) -> list[tuple[str, ...]]:
    """The names of each item's labels; their numbers where the source has no names."""
    if data.labels is None:
        return [()] * len(data.features)
    if data.labels.ndim == 2:
        names = data.classes or tuple(map(str, range(data.labels.shape[1])))
        return [tuple(names[column] for column in np.flatnonzero(row)) for row in data.labels]
    if not data.classes:
        return [(str(label),) for label in data.labels]
    # A class without a name is that of images in no class.
    return [(data.classes[label],) if data.classes[label] else () for label in data.labels]
