"""Shapes in signatures are checked while the tests run."""

import pkgutil

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
