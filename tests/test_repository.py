"""What a newcomer relies on before any code runs."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Test files in a package's folder that test several of its modules together.
CROSS_CUTTING = {
    "devices",
    *("commands", "train_images", "nested_codes"),  # cli, training
    *("registry", "engines", "call_depth", "durability", "replaced"),  # hashers, index
    *("resuming", "memory_use", "hold_out_classes", "teacher"),  # training
    *("without_labels", "unlabelled_images"),  # training
    "hostile_names",  # cli
    *("fairness", "hostile_uploads", "milvus", "schema"),  # serve
    "indexing_on_ray",  # retrieval
}


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-cuda.lock"])
def test_a_lock_holds_names_versions_and_hashes_only(lock):
    requirement = r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+( ; [a-z_ =!<>()'0-9A-Z.]+)?"
    hashes = r"( \\\n    --hash=sha256:[0-9a-f]{64})+"
    for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text().strip()):
        assert re.fullmatch(requirement + hashes, entry), entry


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
    ("unwanted", "packages"),
    [
        (
            "torchvision",
            (
                *("losses", "evaluation", "index", "hashers", "networks", "encoders"),
                *("training", "experiments.reproduce", "serve"),
            ),
        ),
        ("torch", ("codes", "relevance", "metrics", "evaluation", "index")),
    ],
)
def test_these_packages_load_without(unwanted, packages):
    program = "import importlib, sys\n" + "".join(
        f"importlib.import_module('orbithash.{package}')\n"
        f"assert {unwanted!r} not in sys.modules, 'orbithash.{package}'\n"
        for package in packages
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_examples_do_not_depend_on_the_modules_that_are_loaded(tmp_path):
    (tmp_path / "loaded.py").write_text(f"numbers = {[7_000_000_000 + i for i in range(200)]}\n")
    program = """
import conftest
from hypothesis import given, strategies

@given(strategies.integers())
def draw(number):
    print(number)

draw()
"""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}:{tmp_path}",
        "HYPOTHESIS_PROFILE": "same",
    }
    drawn = [
        subprocess.check_output([sys.executable, "-c", start + program], env=environment)
        for start in ("", "import loaded")
    ]
    assert drawn[0].count(b"\n") == 100
    assert drawn[0] == drawn[1]


def test_every_test_file_is_named_after_what_it_tests():
    for file in sorted((ROOT / "tests").glob("*/**/test_*.py")):
        if file.parent.name == "faults":  # of the whole program
            continue
        package = ROOT / "src/orbithash" / file.parent.relative_to(ROOT / "tests")
        name = file.stem.removeprefix("test_")
        is_known = name == package.name or (package / name).is_dir()
        assert is_known or (package / f"{name}.py").exists() or name in CROSS_CUTTING, file


def test_no_source_file_is_ignored_by_git():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a clone of the repository, or no git")
    git = ("git", "-c", "safe.directory=*")
    command = [*git, "ls-files", "--others", "--ignored", "--exclude-standard", "src", "tests"]
    ignored = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    assert [file for file in ignored if file.endswith(".py")] == []


def locked_versions():
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, re.MULTILINE)
    return {normalised(name): version for name, version in pinned}


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()
