"""Few calls lie between a search and the compiled kernel."""

import traceback
from pathlib import Path

import numpy as np
import pytest

import orbithash
from orbithash.index import ENGINES, code_table, create_index
from orbithash.kernels.search import asymmetric, nearest

MAX_FRAMES = 4
SOURCES = Path(orbithash.__file__).parent


@pytest.mark.parametrize("kind", ["engine", "folder"])
@pytest.mark.parametrize(
    ("module", "name"), [(nearest, "find_nearest"), (asymmetric, "find_nearest_weighted")]
)
def test_a_search_reaches_the_kernel_in_few_calls(kind, module, name, tmp_path, monkeypatch):
    codes = np.random.default_rng(0).integers(0, 256, (5, 4), dtype=np.uint8)
    index = ENGINES["exact"](32) if kind == "engine" else create_index(tmp_path / "i.orbit", 32)
    index.add(np.arange(5), codes)
    kernel, stacks = getattr(module, name), []

    def recorded_kernel(*arguments):
        stacks.append(traceback.extract_stack())
        return kernel(*arguments)

    monkeypatch.setattr(module, name, recorded_kernel)
    for few in ("FEW_PAIRS", "FEW_BITS"):  # which numpy would search
        monkeypatch.setattr(code_table, few, 0)
    index.search(codes if module is nearest else np.full((1, 32), 0.25), k=2)
    index.close()
    (stack,) = stacks
    ours = [frame.name for frame in stack if Path(frame.filename).is_relative_to(SOURCES)]
    ours.append("the wrapper of parallel_njit, which the recorded kernel replaces")
    assert len(ours) <= MAX_FRAMES, ours
