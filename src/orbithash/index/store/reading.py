"""Reading: items from segments, blocks and rows, their check at opening, and the encoder."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from orbithash.codes import code_bytes
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index.base import NO_METADATA, Items
from orbithash.index.code_table import CodeTable
from orbithash.index.parted_table import Part, PartedTable
from orbithash.index.store.database import FILE, close, connect, database_format
from orbithash.index.store.manifest import LiveSegment
from orbithash.index.store.tables import Tables, read_facts

logger = logging.getLogger(__name__)

ENCODER = "model.safetensors"  # the name it has in a run, so that orbithash.load takes either
BATCH = 4096  # items of a damaged segment that are read together


def check_manifest(tables: Tables, segments: Sequence[LiveSegment]) -> None:
    """Raise unless all segments and blocks are there, with the right lengths, in their order.

    The work does not grow with the number of codes in segments. Their contents are verified when
    they are read.
    """
    if database_format(tables.connection) < 3:
        return
    tables.blocks.check()
    in_blocks = int(tables.fact("n_codes"))
    # Each item in a block has a row, and of the others those that have metadata. A removed item
    # has none, so this is the largest number.
    most = in_blocks + sum(live.n_described for live in segments)
    if int(tables.fact("n_items")) > most:
        raise DamagedIndexError(tables.folder, "it has more rows of metadata than items")


def joined_table(codes: CodeTable, segments: Sequence[LiveSegment]) -> CodeTable | PartedTable:
    """Return one table of the codes in blocks and in segments."""
    parts = [live.part for live in segments if len(live)]
    if len(codes) or not parts:
        parts.append(Part(codes))
    if len(parts) == 1 and len(parts[0].removed) == 0:
        return parts[0].table
    return PartedTable(codes.n_bits, tuple(parts))


def stored_items(
    tables: Tables,
    segments: Sequence[LiveSegment],
    loaded: CodeTable | None,
    ids: Int64[np.ndarray, " n"],
) -> Items:
    """Return those of the items that are stored, in this order.

    Codes come from the mapped segments, and from `loaded` if what is in blocks has been loaded.
    """
    n_bytes = code_bytes(tables.blocks.n_bits)
    codes = np.zeros((len(ids), n_bytes), dtype=np.uint8)
    in_segments = np.zeros(len(ids), dtype=np.bool_)
    described = np.zeros(len(ids), dtype=np.bool_)
    for live in segments:
        positions, found = live.find(ids)
        live.segment.verify_at(positions[found])
        codes[found] = live.segment.table.codes(positions[found])
        described[found] = live.segment.are_described(positions[found])
        in_segments |= found
    metadata = [None if pair is None else pair[1] for pair in tables.rows.get(ids)]
    has_row = np.array([each is not None for each in metadata], dtype=np.bool_)
    if np.any(described & ~has_row):
        raise DamagedIndexError(tables.folder, "some items have no metadata")
    if np.any(in_segments & ~described & has_row):
        raise DamagedIndexError(tables.folder, "some items have metadata of others")
    in_blocks = has_row & ~in_segments
    if loaded is None:
        tables.blocks.check_absent(np.sort(ids[~has_row & ~in_segments]))
        codes[in_blocks] = tables.blocks.get(ids[in_blocks])
    else:
        positions, found = loaded.positions(ids)
        if np.any(found & ~has_row) or np.any(in_blocks & ~found):
            reason = "metadata" if np.any(found & ~has_row) else "codes"
            raise DamagedIndexError(tables.folder, f"some items have no {reason}")
        codes[in_blocks] = loaded.codes(positions[in_blocks])
    is_stored = in_segments | in_blocks
    return Items(
        ids[is_stored],
        codes[is_stored],
        tuple(
            NO_METADATA if each is None else each
            for each, stored in zip(metadata, is_stored.tolist(), strict=True)
            if stored
        ),
    )


def undamaged_of_segments(
    segments: Sequence[LiveSegment],
    read: Callable[[Int64[np.ndarray, " n"]], Iterator[Items]],
) -> Iterator[Items]:
    """Yield the items of segments whose codes are intact."""
    for live in segments:
        segment = live.segment
        kept = np.ones(len(segment), dtype=np.bool_)
        kept[live.removed] = False
        for start, stop in segment.damaged_runs():
            logger.warning("codes %d to %d of %s are not as written", start, stop - 1, segment.info)
            kept[start:stop] = False
        positions = np.flatnonzero(kept)
        for start in range(0, len(positions), BATCH):
            yield from read(segment.table.ids[positions[start : start + BATCH]])


def folder_bytes(folder: Path) -> int:
    """Return the size of all files of a folder; some may be removed meanwhile."""
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def is_index(folder: Path) -> bool:
    return (folder / FILE).is_file()


def encoder_of_folder(folder: Path) -> bytes:
    """Return the file of the encoder of an index; its codes are not looked at."""
    connection = connect(folder)
    try:
        facts = read_facts(connection, folder)
    finally:
        close(connection, folder)
    return read_encoder(folder, facts)


def read_encoder(folder: Path, facts: Mapping[str, Any]) -> bytes:
    """Return the encoder's file; raise unless it is the one that was written."""
    if "encoder" not in facts:
        raise InputError(f"{folder} holds no encoder; give codes instead of images")
    try:
        content = (folder / ENCODER).read_bytes()
    except OSError as error:
        raise DamagedIndexError(folder, f"cannot read {ENCODER}: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != facts["encoder"]:
        raise DamagedIndexError(folder, f"{ENCODER} is not as written")
    return content
