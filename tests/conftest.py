"""Shapes in signatures are checked while the tests run; examples are the same in every run."""

import os
import pkgutil

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers
from jaxtyping import install_import_hook

import orbithash

# Compiled kernels are left out: numba must see the functions as they are written.
checked = [
    f"orbithash.{module.name}"
    for module in pkgutil.iter_modules(orbithash.__path__)
    if module.name != "kernels"
]
install_import_hook(checked, "shape_checks.check")

from milvus_servers import milvus_server  # noqa: E402, F401 — a fixture, for tests anywhere

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
    max_examples=10_000,
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
