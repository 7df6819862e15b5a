"""`import orbithash` gives everything as attributes, each loaded when it is first used."""

import subprocess
import sys

import pytest

import orbithash


def test_packages_and_functions_are_attributes():
    from orbithash.evaluation import evaluate, evaluate_codes
    from orbithash.retrieval import open_index
    from orbithash.training import train

    assert orbithash.train is train
    assert orbithash.evaluate is evaluate
    assert orbithash.evaluate_codes is evaluate_codes
    assert orbithash.open_index is open_index
    assert "order-aware" in orbithash.losses.LOSSES
    assert "itq" in orbithash.hashers.HASHERS
    assert "exact" in orbithash.index.ENGINES
    for name in dir(orbithash):
        assert getattr(orbithash, name) is not None


def test_an_unknown_attribute_raises():
    with pytest.raises(AttributeError, match="'orbithash' has no attribute 'lossess'"):
        _ = orbithash.lossess


@pytest.mark.parametrize(
    ("expression", "heavy"),
    [
        ("orbithash.load", {"torch", "numba"}),
        ("orbithash.codes.pack", {"torch", "numba"}),
        ("orbithash.evaluate_codes", {"torch"}),
        ("orbithash.index.ENGINES", {"torch"}),
    ],
)
def test_an_attribute_loads_only_what_it_needs(expression, heavy):
    program = (
        f"import orbithash, sys; {expression}; "
        f"loaded = {heavy!r} & set(sys.modules); sys.exit(f'loaded {{loaded}}' if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_losses_are_an_attribute_right_after_the_import():
    program = "import orbithash; print(sorted(orbithash.losses.LOSSES)[0])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "csq\n"
