import threading

import numpy as np
import pytest

from orbithash.errors import InputError
from orbithash.index import Metadata, add_under_new_ids, create_index, open_index

N_EACH = 12


def test_two_concurrent_writers_both_store_everything(tmp_path):
    create_index(tmp_path / "index.orbit", 8).close()
    start = threading.Barrier(2)
    assigned = {}

    def write(name):
        with open_index(tmp_path / "index.orbit") as index:
            start.wait()
            assigned[name] = [add_under_new_ids(index, *items(name, 3)) for _ in range(N_EACH)]

    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with open_index(tmp_path / "index.orbit") as index:
        assert len(index) == 2 * 3 * N_EACH
        for name, ids in assigned.items():
            stored = index.get(np.concatenate(ids))
            assert {each.path for each in stored.metadata} == {name}


def test_ids_that_another_writer_takes_meanwhile_are_not_used(tmp_path, monkeypatch):
    with create_index(tmp_path / "index.orbit", 8) as index:
        others = iter([0, 2])
        original = index.next_id

        def next_id():
            found = original()
            for first in others:
                index.add(np.arange(first, first + 2), *items("other", 2))
                break
            return found

        monkeypatch.setattr(index, "next_id", next_id)
        assert add_under_new_ids(index, *items("ours", 2)).tolist() == [4, 5]
        assert add_under_new_ids(index, *items("ours", 0)).tolist() == []
        assert len(index) == 6


def test_there_is_no_id_above_the_largest(tmp_path):
    with create_index(tmp_path / "index.orbit", 8) as index:
        index.add(np.array([2**63 - 3]), *items("near the end", 1))
        with pytest.raises(InputError, match="no ids left"):
            add_under_new_ids(index, *items("two", 2))
        index.add(np.array([2**63 - 1]), *items("at the end", 1))
        with pytest.raises(InputError, match="no ids left"):
            index.next_id()
        assert len(index) == 2


def items(path, n):
    return np.zeros((n, 1), np.uint8), [Metadata(path)] * n
