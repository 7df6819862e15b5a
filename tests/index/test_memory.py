"""Engines that build a structure build it once for each state of the codes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from orbithash.index import ENGINES, code_table, memory
from orbithash.index.memory import DerivedIndex

DERIVED = [name for name, engine in ENGINES.items() if issubclass(engine, DerivedIndex)]
N_THREADS = 4


@pytest.mark.parametrize("name", DERIVED)
def test_concurrent_searches_build_once_for_each_state(name, monkeypatch):
    if "faiss" in name:
        pytest.importorskip("faiss")
    monkeypatch.setattr(memory, "MIN_TABLE_CODES", 0)
    codes = np.random.default_rng(0).integers(0, 256, (200, 4), dtype=np.uint8)
    index, built, build = ENGINES[name](32), [], ENGINES[name].build

    def slow_build(self, table):
        built.append(len(table))
        time.sleep(0.05)  # so that other threads arrive before it is done
        return build(self, table)

    monkeypatch.setattr(ENGINES[name], "build", slow_build)
    for n_items in (100, 200):
        index.add(np.arange(n_items - 100, n_items), codes[n_items - 100 : n_items])
        start = threading.Barrier(N_THREADS)

        def search(start=start):
            start.wait()
            return index.search(codes[:5], k=1).distances.tolist()

        with ThreadPoolExecutor(N_THREADS) as threads:
            results = [threads.submit(search) for _ in range(N_THREADS)]
        assert all(result.result() == [[0]] * 5 for result in results)
    assert built == [100, 200]


@pytest.mark.parametrize("name", [name for name in DERIVED if "faiss" in name])
def test_nothing_is_built_for_a_radius_or_for_an_empty_index(name, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(ENGINES[name], "build", None)
    codes = np.random.default_rng(0).integers(0, 256, (20, 4), dtype=np.uint8)
    index = ENGINES[name](32)
    assert index.search(codes, k=3).ids.shape == (20, 0)
    index.add(codes=codes)
    assert 0 in index.within(codes[:1], radius=0)[0].ids


@pytest.mark.parametrize("name", ["exact", "exact-mih"])
def test_few_codes_give_the_results_of_the_compiled_search(name, monkeypatch):
    codes = np.random.default_rng(0).integers(0, 4, (300, 3), dtype=np.uint8)  # many ties
    index = ENGINES[name](24)
    index.add(np.arange(300)[::-1], codes)
    nearest, balls = index.search(codes[:9], k=7), index.within(codes[:9], radius=2)
    monkeypatch.setattr(code_table, "FEW_PAIRS", 0)
    monkeypatch.setattr(memory, "MIN_TABLE_CODES", 0)
    compiled, compiled_balls = index.search(codes[:9], k=7), index.within(codes[:9], radius=2)
    np.testing.assert_array_equal(nearest.ids, compiled.ids)
    np.testing.assert_array_equal(nearest.distances, compiled.distances)
    for ball, compiled_ball in zip(balls, compiled_balls, strict=True):
        np.testing.assert_array_equal(ball.ids, compiled_ball.ids)
        np.testing.assert_array_equal(ball.distances, compiled_ball.distances)
