"""Settings of all tests: shapes are checked, and random numbers are the same in every run."""

import os
import pkgutil
import random
import signal
import sys

# Networks this small are slower on two threads, and much slower beside other test processes.
# Read when numpy and torch are loaded; commands that tests start inherit it. Numba keeps its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers
from jaxtyping import install_import_hook

import orbithash

# Jobs in the background of a script start with Ctrl-C ignored, and so would every test.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiled kernels are left out: numba must see the functions as they are written.
checked = [
    f"orbithash.{module.name}"
    for module in pkgutil.iter_modules(orbithash.__path__)
    if module.name != "kernels"
]
install_import_hook(checked, "shape_checks.check")

from milvus_servers import milvus_server  # noqa: E402, F401 — a fixture, for tests anywhere
from ray_clusters import ray_address  # noqa: E402, F401 — the same
from shared_compilation import share_compilation  # noqa: E402

if "PYTEST_XDIST_WORKER" in os.environ:
    share_compilation()

settings.register_profile(
    "same",
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make fuzz`: random examples, many of them; a failure is kept and printed with how to repeat it.
settings.register_profile(
    "fuzz",
    max_examples=20_000,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
profile = os.environ.get("HYPOTHESIS_PROFILE", "same")
settings.load_profile(profile)
if profile == "same":
    # Constants of the loaded modules are examples too, but other tests decide which are loaded.
    providers._get_local_constants = providers.Constants


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart():
    seed_generators()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup():
    seed_generators()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call():
    seed_generators()


def seed_generators() -> None:
    """Make draws independent of the tests and fixtures that ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 — what scikit-learn draws from by default
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
