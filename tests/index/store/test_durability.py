"""Stored items survive anything that happens to the writer."""

import os
import signal

import numpy as np
import pytest

from clean_processes import call
from index_writer import (
    BATCH,
    N_BITS,
    batch_codes,
    batch_metadata,
    last_stored_batch,
    wait_for,
    write,
)
from orbithash.index import create_index, open_index
from orbithash.kernels.plain_search import nearest_reference


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param((36, 10, 28, 135), id="few"),
        pytest.param(range(30, 330, 6), marks=pytest.mark.slow, id="many"),
    ],
)
def test_a_killed_writer_loses_nothing_that_it_reported(tmp_path, moments):
    folder, told = tmp_path / "index.orbit", tmp_path / "told.txt"
    create_index(folder, N_BITS).close()
    first = 0
    for moment in moments:
        writer = call(write, str(folder), told, first, moment)
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        with open_index(folder) as index:
            assert_whole(index, at_least=last_stored_batch(told) + 1)
            first = len(index) // BATCH
    assert first > 3


def test_readers_see_whole_batches_while_one_process_writes(tmp_path):
    folder, told = tmp_path / "index.orbit", tmp_path / "told.txt"
    create_index(folder, N_BITS).close()
    writer = call(write, str(folder), told, 0)
    try:
        with open_index(folder) as reader:
            seen = 0
            for _ in range(8):
                wait_for(lambda: last_stored_batch(told) >= seen, writer)  # noqa: B023
                stored_before = (last_stored_batch(told) + 1) * BATCH
                query = batch_codes(0)[:2]
                (ball, _) = reader.within(query, radius=N_BITS)
                assert len(ball.ids) % BATCH == 0
                assert len(ball.ids) >= stored_before
                seen = len(ball.ids) // BATCH
    finally:
        os.kill(writer.pid, 9)
        writer.join()


def assert_whole(index, *, at_least: int) -> None:
    """Check that the index holds the first batches as they were written, and finds them."""
    count = len(index)
    assert count % BATCH == 0
    n_batches = count // BATCH
    assert n_batches >= at_least
    if n_batches == 0:
        return
    codes = np.concatenate([batch_codes(batch) for batch in range(n_batches)])
    stored = list(index.iterate(batch_size=1 << 20))
    np.testing.assert_array_equal(np.concatenate([items.ids for items in stored]), range(count))
    np.testing.assert_array_equal(np.concatenate([items.codes for items in stored]), codes)
    notes = [note for items in stored for note in items.metadata]
    assert notes == [note for batch in range(n_batches) for note in batch_metadata(batch)]
    queries = codes[:: max(1, count // 3)]
    found = index.search(queries, k=7)
    distances, positions = nearest_reference(queries, codes, k=7)
    np.testing.assert_array_equal(found.ids, positions)
    np.testing.assert_array_equal(found.distances, distances)
