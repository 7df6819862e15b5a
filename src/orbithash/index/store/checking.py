"""A check of everything an index holds: what is damaged, in words that name it."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from jaxtyping import Int64

from orbithash.errors import DamagedIndexError
from orbithash.index.packed_ids import RUN, merged_runs
from orbithash.index.parted_table import NO_IDS
from orbithash.index.store.manifest import LiveSegment
from orbithash.index.store.reading import check_manifest
from orbithash.index.store.tables import Tables

IDS_AT_ONCE = 1 << 18
SHOWN_BY_SQLITE = 20


def problems(tables: Tables, segments: tuple[LiveSegment, ...]) -> Iterator[str]:
    """Yield what is damaged; the caller has begun a transaction."""
    yield from of_sqlite(tables)
    for check in (
        lambda: tables.manifest.check(),
        lambda: check_manifest(tables, segments),
        lambda: tables.rows.check_count(),
    ):
        yield from failed(check)
    for live in segments:
        yield from of_segment(live)
    for first in tables.blocks.unchecked_firsts():
        yield from failed(lambda first=first: tables.blocks.read(first))  # type: ignore[misc]
    yield from of_ids(tables, segments)
    yield from of_rows(tables, segments)
    for label in tables.rows.labels():
        if not isinstance(label, str):
            yield f"the label {label!r} is no text"
            continue
        yield from failed(lambda label=label: tables.rows.items_with(label))  # type: ignore[misc]
    for source in tables.rows.sources():
        yield from failed(lambda source=source: tables.rows.known(source))  # type: ignore[misc]


def of_sqlite(tables: Tables) -> Iterator[str]:
    for (line,) in tables.connection.execute(f"PRAGMA integrity_check({SHOWN_BY_SQLITE})"):
        if line != "ok":
            yield f"SQLite: {' '.join(str(line).split())}"


def of_segment(live: LiveSegment) -> Iterator[str]:
    """Verify every piece of a segment, and what the manifest says about its ids."""
    segment, name = live.segment, live.segment.info.file
    try:
        damaged = list(segment.damaged_runs())
    except DamagedIndexError as error:
        yield error.reason
        return
    for start, stop in damaged:
        yield f"{name} has codes {start} to {stop - 1} that are not as written"
    if damaged:
        return
    last = None
    for start in range(0, len(segment), IDS_AT_ONCE):
        ids = segment.table.ids[start : start + IDS_AT_ONCE]
        before = ids[:-1] if last is None else np.concatenate([[last], ids[:-1]])
        if np.any(ids[len(ids) - len(before) :] <= before):
            yield f"{name} has ids that do not ascend"
            return
        last = ids[-1]
    if (int(segment.table.ids[:1][0]), last) != (segment.info.first, segment.info.last):
        yield f"{name} has other ids than the manifest says"
    if segment.n_described() != live.n_described:
        yield f"{name} has metadata of other items than the manifest says"


def of_ids(tables: Tables, segments: tuple[LiveSegment, ...]) -> Iterator[str]:
    """Find ids that are stored twice: in two segments, or in a segment and a block."""
    blocks = [NO_IDS]
    for first in tables.blocks.unchecked_firsts():
        for _ in failed(lambda first=first: blocks.append(tables.blocks.read(first).ids)):  # type: ignore[misc]
            pass  # reported already
    in_blocks = np.concatenate(blocks)
    bounds = sorted((live.segment.info.first, live.segment.info.last) for live in segments)
    interleave = any(end >= start for (_, end), (start, _) in pairwise(bounds))
    if interleave:
        for slices in merged_runs([live.segment.table.ids for live in segments], IDS_AT_ONCE):
            parts = [
                np.delete(
                    live.segment.table.ids[run],
                    live.removed[(live.removed >= run.start) & (live.removed < run.stop)]
                    - run.start,
                )
                for live, run in zip(segments, slices, strict=True)
            ]
            ids = np.sort(np.concatenate(parts))
            for twice in ids[1:][ids[1:] == ids[:-1]]:
                yield f"id {twice} is in two segments"
    for live in segments:
        for twice in in_blocks[live.find(in_blocks)[1]] if len(in_blocks) else ():
            yield f"id {twice} is in {live.segment.info.file} and in a block"


def of_rows(tables: Tables, segments: tuple[LiveSegment, ...]) -> Iterator[str]:
    """Verify each row of metadata, and that there is one for each item that should have one."""
    described = [
        live.segment.table.ids[positions]
        for live in segments
        for positions in described_positions(live)
    ]
    blocks = [NO_IDS]
    for first in tables.blocks.unchecked_firsts():
        for _ in failed(lambda first=first: blocks.append(tables.blocks.read(first).ids)):  # type: ignore[misc]
            pass  # reported already
    expected = np.sort(np.concatenate([NO_IDS, *described, *blocks]))
    found = []
    n_labels = 0
    for identifier, labels, error in tables.rows.checked():
        found.append(identifier)
        if error:
            yield error
        else:
            n_labels += len(set(json.loads(labels)))
    ids = np.sort(np.array(found, dtype=np.int64))
    for missing in np.setdiff1d(expected, ids, assume_unique=True):
        yield f"the metadata of item {missing} is missing"
    for other in np.setdiff1d(ids, expected):
        yield f"there is metadata of item {other}, which has no code"
    (stored,) = tables.connection.execute("SELECT count(*) FROM labels").fetchone()
    if stored != n_labels:
        yield f"the table of labels has {stored} entries, and the items have {n_labels} labels"


def described_positions(live: LiveSegment) -> Iterator[Int64[np.ndarray, " n"]]:
    """Yield the positions of items with metadata that were not removed."""
    for start in range(0, len(live.segment) if live.n_described else 0, RUN):
        positions = np.arange(start, min(start + RUN, len(live.segment)))
        positions = np.setdiff1d(positions, live.removed, assume_unique=True)
        try:
            yield positions[live.segment.are_described(positions)]
        except DamagedIndexError:
            continue  # reported already


def failed(check: Callable[[], object]) -> Iterator[str]:
    try:
        check()
    except DamagedIndexError as error:
        yield error.reason
