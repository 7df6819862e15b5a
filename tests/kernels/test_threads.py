import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
SEARCHES = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from numba import threading_layer
from orbithash.kernels.search.nearest import nearest_codes
from orbithash.kernels.plain_search import nearest_reference

rng = np.random.default_rng(0)
database = rng.integers(0, 256, (20_000, 8), dtype=np.uint8)
queries = database[:8]
expected = nearest_reference(queries, database, 3)
with ThreadPoolExecutor(4) as threads:
    for found in threads.map(lambda _: nearest_codes(queries, database, 3), range(200)):
        np.testing.assert_array_equal(found, expected)
print(threading_layer())
"""


def test_threads_search_concurrently_even_if_numba_has_no_openmp():
    environment = {
        "PYTHONPATH": str(SOURCES),
        "NUMBA_THREADING_LAYER": "workqueue",
        "NUMBA_NUM_THREADS": "2",
    }
    process = subprocess.run(
        [sys.executable, "-c", SEARCHES],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "workqueue\n", "")
