"""What a newcomer relies on before any code runs."""

import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_lock_holds_names_and_versions_only():
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line), line


def test_the_lock_names_every_declared_dependency_and_no_torchvision():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = itertools.chain(project["dependencies"], *extras)
    locked = locked_versions()
    for requirement in declared:
        if requirement.startswith("orbithash["):  # our own extras
            continue
        assert normalised(re.match(r"[A-Za-z0-9._-]+", requirement)[0]) in locked, requirement
    assert locked["torch"] == "2.13.0"
    assert "torchvision" not in locked


@pytest.mark.parametrize(
    "package", ["losses", "evaluation", "index", "hashers", "networks", "encoders", "training"]
)
def test_no_package_needs_torchvision(package):
    program = f"import orbithash.{package}, sys; sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("package", ["codes", "relevance", "metrics", "evaluation", "index"])
def test_search_and_scoring_do_not_load_torch(package):
    program = f"import orbithash.{package}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def locked_versions():
    lines = (ROOT / "requirements.lock").read_text().split()
    return {normalised(name): version for name, version in (line.split("==") for line in lines)}


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()
