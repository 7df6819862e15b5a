"""How many of our functions lie between a user's call and the compiled code: few, to be readable.

Functions are counted on the stack when the kernel is first called; lower the limits when fewer are.
"""

import traceback
from pathlib import Path

import numpy as np
import pytest

import orbithash
from feature_files import write_clouds
from indexed_runs import feature_run
from orbithash.cli import main
from orbithash.index import code_table
from orbithash.kernels.search import asymmetric, nearest
from orbithash.kernels.triplets import sums

OURS = Path(orbithash.__file__).parent


@pytest.fixture
def record_stacks(monkeypatch):
    """Return a function that records our functions on the stack of each call of a kernel."""

    def record(module, name):
        kernel, stacks = getattr(module, name), []

        def spy(*arguments):
            frames = traceback.extract_stack()
            ours = [frame for frame in frames if Path(frame.filename).is_relative_to(OURS)]
            stacks.append([f"{Path(f.filename).relative_to(OURS)}:{f.name}" for f in ours])
            return kernel(*arguments)

        monkeypatch.setattr(module, name, spy)
        return stacks

    return record


def test_a_training_command_reaches_the_compiled_loss_in_few_calls(record_stacks, tmp_path):
    stacks = record_stacks(sums, "_sum_binary")
    features = write_clouds(tmp_path / "clouds.npz")
    arguments = ["train", str(features), "--bits", "8", "--epochs", "1"]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--out", str(tmp_path / "run")])
    assert end.value.code == 0
    assert stacks[0][0] == "cli/__init__.py:main"
    assert len(stacks[0]) <= 9, stacks[0]


@pytest.mark.parametrize("by", ["vector", "id"])
def test_a_query_reaches_the_compiled_search_in_few_calls(record_stacks, tmp_path, by, monkeypatch):
    for few in ("FEW_PAIRS", "FEW_BITS"):  # which numpy would search
        monkeypatch.setattr(code_table, few, 0)
    encoder = orbithash.load(feature_run(tmp_path / "run"))
    vectors = np.random.default_rng(0).standard_normal((20, 16)).astype(np.float32)
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add(codes=encoder.encode(vectors))
        stacks = (
            record_stacks(asymmetric, "find_nearest_weighted")
            if by == "vector"
            else record_stacks(nearest, "find_nearest")
        )
        index.query(vectors[0]) if by == "vector" else index.query(id=0)
    assert stacks[0][0] == "retrieval/search_index.py:query"
    assert len(stacks[0]) <= 5, stacks[0]
