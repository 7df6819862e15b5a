"""Packed ids behave like the sorted array they were packed from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbithash.index.packed_ids import (
    RUN,
    WIDTHS,
    IdRange,
    PackedIds,
    count_up_to,
    find_ids,
    merged_runs,
    pack_run,
)

LIMITS = np.iinfo(np.int64)


def packed(ids) -> PackedIds:
    runs = [pack_run(ids[start : start + RUN]) for start in range(0, len(ids), RUN)]
    starts = np.cumsum([0, *(len(offsets) for _, _, offsets in runs[:-1])])
    offsets = np.frombuffer(b"".join(offsets for _, _, offsets in runs), dtype=np.uint8)
    bases, widths = (np.array([run[i] for run in runs]) for i in (0, 1))
    return PackedIds(len(ids), bases, widths, starts, offsets)


def assert_like(stored, ids, others):
    assert len(stored) == len(ids)
    np.testing.assert_array_equal(stored[:], ids)
    np.testing.assert_array_equal(stored[-3:], ids[-3:])
    places = np.random.default_rng(0).integers(0, len(ids), (4, 5))
    np.testing.assert_array_equal(stored[places], ids[places])
    mask = np.arange(len(ids)) % 3 == 1
    np.testing.assert_array_equal(stored[mask], ids[mask])
    wanted = np.concatenate([others, ids[:: max(1, len(ids) // 7)]])
    for found, expected in zip(find_ids(stored, wanted), find_ids(ids, wanted), strict=True):
        is_stored = find_ids(ids, wanted)[1]
        np.testing.assert_array_equal(found[is_stored], expected[is_stored])
    for one in wanted[:9].tolist():
        assert count_up_to(stored, one) == np.searchsorted(ids, one, side="right")


@given(st.sets(st.integers(LIMITS.min, LIMITS.max), min_size=1, max_size=30))
def test_any_ids(numbers):
    ids = np.array(sorted(numbers), dtype=np.int64)
    others = np.array([LIMITS.min, -1, 0, 5, LIMITS.max])
    assert_like(packed(ids), ids, others)


@pytest.mark.parametrize("spread", [0, 1, 20, 10**5, 10**12])
def test_runs_of_many_ids_take_as_few_bytes_as_fit(spread):
    gaps = 1 + np.random.default_rng(0).integers(0, spread + 1, 3 * RUN + 5)
    ids = np.cumsum(gaps) - 10**9
    stored = packed(ids)
    assert_like(stored, ids, ids[::1000] + 1)
    expected = {0: 0, 1: 2, 20: 4, 10**5: 4, 10**12: 8}[spread]
    assert set(stored.widths[:-1].tolist()) == {expected}
    assert expected in (0, *WIDTHS)


@pytest.mark.parametrize("first", [-7, 0, LIMITS.max - 20])
def test_a_range_is_an_array_without_bytes(first):
    ids = np.arange(first, first + 20)
    stored = IdRange(first, 20)
    assert stored.nbytes == 0
    assert_like(stored, ids, np.array([LIMITS.min, first - 1, LIMITS.max]))


def test_parts_are_merged_in_the_order_of_ids_a_few_at_once():
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.arange(5000) * 3)
    parts = [np.sort(part) for part in np.array_split(ids[:4000], [100, 1500, 3990])]
    parts = [packed(part) for part in parts] + [IdRange(20_000, 1000)]
    merged, last = [], LIMITS.min
    for slices in merged_runs(parts, 64):
        found = np.sort(
            np.concatenate([part[run] for part, run in zip(parts, slices, strict=True)])
        )
        assert len(found) <= 64 * len(parts)
        assert found[0] > last
        last = found[-1]
        merged.append(found)
    everything = np.concatenate([part[:] for part in parts])
    np.testing.assert_array_equal(np.concatenate(merged), np.sort(everything))
