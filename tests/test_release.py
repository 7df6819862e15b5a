"""The release: built twice it is the same, and installed alone it does what it promises."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from extra_programs import PROGRAMS, START

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"test", "check", "docs", "fuzz", "bench", "servers"}
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS)

pytestmark = pytest.mark.slow

# The five things of the Python interface, in an empty folder.
FIVE_THINGS = """
import sys
import numpy as np
import orbithash

assert not {"torch", "numba"} & set(sys.modules)
rng = np.random.default_rng(0)
labels = np.repeat(np.arange(4), 30)
vectors = (labels[:, None] + rng.standard_normal((120, 16))).astype("float32")
encoder = orbithash.train((vectors[::2], labels[::2]), bits=16, epochs=5, hidden=32, out="run")
codes = encoder.encode(vectors)
assert codes.shape == (120, 2)
encoder = orbithash.load("run")
assert (encoder.encode(vectors) == codes).all()
with orbithash.open_index("vectors.orbit", encoder=encoder) as index:
    assert len(index.add(codes=codes)) == 120
    assert len(list(index.query(vectors[7], k=3))) == 3
assert 0.5 < orbithash.evaluate(encoder, (vectors[1::2], labels[1::2])).map <= 1
"""


@pytest.fixture(scope="module")
def packaging(tmp_path_factory):
    """The Python of an environment that holds the build frontend."""
    return environment(tmp_path_factory.mktemp("packaging"), "build")


@pytest.fixture(scope="module")
def built(packaging, tmp_path_factory):
    return build(packaging, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def core(built, tmp_path_factory):
    """The Python of an environment that holds the wheel without any extra."""
    return environment(tmp_path_factory.mktemp("core"), "torch==2.13.0", built["whl"])


def test_a_second_build_gives_the_same_bytes(packaging, built, tmp_path):
    again = build(packaging, tmp_path)
    for suffix, file in built.items():
        assert digest(again[suffix]) == digest(file), file.name


def test_the_wheel_holds_the_package_alone(built):
    names = set(zipfile.ZipFile(built["whl"]).namelist())
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"orbithash"}
    files = {path.relative_to(ROOT / "src").as_posix() for path in package_files()}
    assert files <= names
    assert "orbithash/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_source_distribution_holds_tests_and_docs_but_no_data(built):
    with tarfile.open(built["gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/test_release.py", "docs/index.md", "Makefile", "requirements.lock"} <= names
    assert not [name for name in names if name.endswith((".npz", ".orbit", ".safetensors"))]


def test_the_metadata_is_complete(built):
    with zipfile.ZipFile(built["whl"]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    assert f"\nVersion: {PROJECT['version']}\n" in metadata
    for field in (
        "Author",
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.11",
        "Keywords",
    ):
        assert f"\n{field}" in metadata
    assert "\nRequires-Dist: torch>=" in metadata  # a range


def test_the_wheel_alone_does_the_five_things(core, tmp_path):
    done = run(core, ["-c", FIVE_THINGS], tmp_path)
    assert done.returncode == 0, done.stderr
    assert run(core, ["-m", "pip", "check"], tmp_path).returncode == 0
    command = [str(core.with_name("orbithash")), "--version"]
    assert subprocess.check_output(command, text=True) == f"orbithash {PROJECT['version']}\n"


def test_the_demo_runs_in_an_empty_folder(core, tmp_path):
    done = run(core, ["-m", "orbithash", "demo", "--out", "report"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "report.html").exists()


def test_there_is_a_program_for_each_extra():
    assert set(EXTRAS) == set(PROGRAMS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_works_alone_and_is_named_where_it_is_missing(core, built, tmp_path, extra):
    program = ["-c", START + PROGRAMS[extra]]
    (tmp_path / "before").mkdir()
    without = run(core, program, tmp_path / "before")
    assert f"pip install 'orbithash[{extra}]'" in without.stderr
    python = environment(tmp_path / "venv", f"{built['whl']}[{extra}]", beneath=core)
    (tmp_path / "after").mkdir()
    done = run(python, program, tmp_path / "after")
    assert done.returncode == 0, done.stderr


def environment(folder: Path, *requirements: str | Path, beneath: Path | None = None) -> Path:
    """Create an environment, with the packages of another one beneath, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    if beneath is not None:
        (packages,) = (beneath.parents[1] / "lib").glob("python*/site-packages")
        (own,) = (folder / "lib").glob("python*/site-packages")
        (own / "beneath.pth").write_text(f"{packages}\n", encoding="utf-8")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, *map(str, requirements)], check=True)
    return python


def build(python: Path, folder: Path) -> dict[str, Path]:
    """Build the committed files, copied into a new folder, by suffix."""
    source = folder / "source"
    source.mkdir()
    archive = subprocess.check_output(
        ["git", "-c", "safe.directory=*", "archive", "HEAD"], cwd=ROOT
    )
    subprocess.run(["tar", "-x", "-m"], cwd=source, input=archive, check=True)
    command = [python, "-m", "build", "--outdir", folder / "dist", source]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
    return {file.name.rpartition(".")[2]: file for file in (folder / "dist").iterdir()}


def run(python: Path, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, without this checkout on its path."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), *arguments]
    return subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    )


def package_files() -> list[Path]:
    files = (ROOT / "src/orbithash").rglob("*")
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
