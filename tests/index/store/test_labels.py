"""Labels are read once, and counted while searches go on."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from orbithash.index import Metadata, Where, create_index, open_index

CODES = np.arange(6, dtype=np.uint8).reshape(3, 2)


def labelled(folder):
    with create_index(folder, 16) as index:
        index.add(np.arange(3), CODES, [Metadata(labels=("old",))] * 3)
    return folder


def test_labels_are_counted_without_keeping_searches_waiting(tmp_path):
    with open_index(labelled(tmp_path / "a.orbit")) as index, ThreadPoolExecutor(1) as thread:
        counted = threading.Event()
        with index._lock:  # as if a search had it
            future = thread.submit(index.label_counts)
            future.add_done_callback(lambda _: counted.set())
            assert counted.wait(60)
        assert future.result() == {"old": 3}


def test_a_filter_reads_the_items_of_a_label_once_until_the_index_changes(tmp_path):
    statements = []
    with open_index(labelled(tmp_path / "a.orbit")) as index:
        index._connection.set_trace_callback(statements.append)
        for _ in range(3):
            assert len(index.search(CODES[:1], 9, Where(labels=("old",))).ids[0]) == 3
            assert index.count(Where(labels=("old",))) == 3
        assert sum("FROM labels" in statement for statement in statements) == 1
        index.add(codes=CODES[:1], metadata=[Metadata(labels=("old",))])
        assert index.count(Where(labels=("old",))) == 4
