"""Near-duplicates across two sources of an index, and across two splits of a source."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.data import ImageSource, LabelledFeatures
from orbithash.data.sources import absolute_source
from orbithash.encoders import Data, Encoder, Progress, encode_source, no_progress
from orbithash.encoders.items import item_paths
from orbithash.errors import InputError
from orbithash.index import DuplicateGroups, ExactIndex, Index, Metadata, SearchEngine
from orbithash.index.base import NO_METADATA
from orbithash.retrieval.indexing import label_names
from orbithash.retrieval.query import still_stored

SPLITS = ("train", "query", "database", "validation")
BATCH = 4096  # items whose metadata are in memory at the same time
MAX_NAMED = 5  # sources in an error message


def across_sources(
    index: Index, groups: DuplicateGroups, first: str, second: str
) -> DuplicateGroups:
    """Return the groups that hold items of both sources.

    An item is of a source if it was indexed from it, or if its file is below that folder.
    """
    masks = [np.zeros(len(groups.ids), dtype=np.bool_) for _ in range(2)]
    for start in range(0, len(groups.ids), BATCH):
        ids = groups.ids[start : start + BATCH].tolist()
        stored = still_stored(index, ids)  # without items that were removed meanwhile
        metadata = tuple(stored[i].metadata if i in stored else NO_METADATA for i in ids)
        for mask, source in zip(masks, (first, second), strict=True):
            mask[start : start + BATCH] = of_source(metadata, source)
    for mask, source in zip(masks, (first, second), strict=True):
        if not mask.any():
            check_source(index, source)
    return groups.holding(*masks)


def of_source(metadata: tuple[Metadata, ...], source: str) -> Bool[np.ndarray, " n"]:
    """Return which items are of a source."""
    absolute = absolute_source(source)
    folder = Path(absolute)
    return np.array(
        [
            item.source in (source, absolute)
            or (item.path.startswith(absolute) and Path(item.path).is_relative_to(folder))
            for item in metadata
        ],
        dtype=np.bool_,
    )


def check_source(index: Index, source: str) -> None:
    """Raise if the index has no item of a source."""
    known: dict[str, None] = {}
    for items in index.iterate(BATCH):
        if of_source(items.metadata, source).any():
            return
        known.update(dict.fromkeys(item.source for item in items.metadata))
    names = list(known)[:MAX_NAMED]
    raise InputError(
        f"no item of the index is from {source}; its sources are {', '.join(names) or 'none'}: "
        "give two of them, or folders below them"
    )


def split_rows(
    data: ImageSource | LabelledFeatures, names: tuple[str, str]
) -> list[Int64[np.ndarray, " rows"]]:
    """Return the row numbers of two splits."""
    for name in names:
        if name not in SPLITS:
            raise InputError(f"there is no split {name!r}; choose two of {', '.join(SPLITS)}")
        if len(getattr(data.split, name)) == 0:
            raise InputError(f"the source has no {name} images; give one that is split into both")
    return [getattr(data.split, name) for name in names]


def encode_in_memory(
    encoder: Encoder,
    data: Data,
    rows: Int64[np.ndarray, " rows"],
    *,
    splits: Mapping[str, Int64[np.ndarray, " part"]] | None = None,
    progress: Progress = no_progress,
) -> tuple[SearchEngine, dict[str, str]]:
    """Encode rows of a source; return an index of them by row number, and those left out.

    The second is the reason for each path that cannot be read. The names of the `splits` that a
    row is in, joined by +, are the field `split` of its metadata.
    """
    names: dict[int, str] = {}
    for name, part in (splits or {}).items():
        for row in part.tolist():
            names[row] = f"{names[row]}+{name}" if row in names else name
    encoded = encode_source(encoder, data, rows=rows, progress=progress)
    paths, labels = item_paths(data), label_names(data)
    index = ExactIndex(encoder.n_bits)
    metadata = [
        Metadata(paths[i], labels[i], fields={"split": names[i]} if i in names else {})
        for i in encoded.rows.tolist()
    ]
    index.add(encoded.rows, encoded.codes, metadata)
    return index, encoded.unreadable
