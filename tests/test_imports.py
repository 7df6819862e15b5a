"""What an import or a short command loads: counted, since times depend on the machine."""

import json
import subprocess
import sys

import numpy as np
import pytest

import orbithash
from image_files import class_folder, noise, save
from indexed_runs import image_run
from orbithash.encoders import FeatureEncoder
from orbithash.networks import FeatureHead

HEAVY = {"torch", "numba", "sklearn", "scipy", "matplotlib"}
# Modules beyond those of a bare interpreter; lower these when less is loaded.
MOST_FOR_IMPORT = 100  # 86 now, nearly all of them for importlib.metadata.version
MOST_FOR_HELP = 350  # 333 now, of which rich, markdown_it and pygments are 141


def test_importing_the_package_loads_little():
    loaded = loaded_by("import orbithash")
    assert not loaded & {*HEAVY, "PIL", "numpy"}
    assert len(loaded) <= MOST_FOR_IMPORT


def test_help_loads_little():
    loaded = loaded_by_command("--help", shown="search")
    assert not loaded & HEAVY
    assert len(loaded) <= MOST_FOR_HELP


def test_searching_for_a_stored_item_loads_no_network(index):
    loaded = loaded_by_command("search", str(index), "--like", "0", "--json", shown="1.jpg")
    assert not loaded & {"torch", "transformers", "sklearn", "scipy", "numba"}


def test_searching_for_an_image_loads_only_the_encoder(index, tmp_path):
    image = save(noise((40, 30), seed=9), tmp_path / "new.jpg")
    loaded = loaded_by_command("search", str(index), str(image), "--json", shown="1.jpg")
    assert "torch" in loaded
    assert not loaded & {"transformers", "sklearn", "scipy", "numba", "onnxruntime", "onnx"}
    assert not loaded & {"orbithash.training", "orbithash.experiments", "orbithash.losses"}


def test_loading_a_head_loads_no_symbolic_algebra(tmp_path):
    FeatureEncoder(FeatureHead(16, 8, known_classes=5), (16,)).save(tmp_path / "run")
    loaded = loaded_by(f"import orbithash; orbithash.load({str(tmp_path / 'run')!r})")
    assert "torch" in loaded
    assert "sympy" not in loaded


def test_ray_is_loaded_only_for_a_cluster():
    indexing = "import orbithash.cli.index, orbithash.retrieval.indexing, orbithash.encoders.on_ray"
    assert "ray" not in loaded_by(indexing)


def test_opening_a_source_loads_scikit_learn_for_the_digits_only(tmp_path):
    folder = class_folder(tmp_path / "photos", {"wren": 3, "gull": 3})
    opened = "import orbithash.data; orbithash.data.open_source({!r})"
    assert not loaded_by(opened.format(str(folder))) & {"torch", "sklearn", "scipy"}
    assert "sklearn.datasets" in loaded_by(opened.format("digits"))


def test_scoring_codes_loads_no_network(tmp_path):
    file, codes = tmp_path / "codes.npz", np.arange(40, dtype=np.uint8)[:, None]
    np.savez(file, codes=codes, n_bits=8, labels=np.arange(40) % 4)
    loaded = loaded_by_command("evaluate", str(file), shown="MAP@R")
    assert not loaded & {"torch", "sklearn", "matplotlib"}


@pytest.fixture
def index(tmp_path):
    """An index of four images with an encoder of images."""
    encoder = orbithash.load(image_run(tmp_path / "run"))
    photos = class_folder(tmp_path / "photos", {"wren": 2, "gull": 2})
    with orbithash.open_index(tmp_path / "index", encoder=encoder) as opened:
        opened.add_images(photos)
    return tmp_path / "index"


def loaded_by_command(*arguments: str, shown: str) -> set[str]:
    """The modules that a command loads; it must print `shown`."""
    return loaded_by(
        "import runpy",
        f"sys.argv = ['orbithash', *{arguments!r}]",
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as text:",
        "    runpy.run_module('orbithash', run_name='__main__')",
        f"assert {shown!r} in text.getvalue(), text.getvalue()",
    )


def loaded_by(*lines: str) -> set[str]:
    """The modules that a program loads in a fresh interpreter."""
    program = "\n".join(
        [
            "import contextlib, io, json, sys",
            "before = set(sys.modules)",
            *lines,
            "print(json.dumps(sorted(set(sys.modules) - before)))",
        ]
    )
    return set(json.loads(subprocess.check_output([sys.executable, "-c", program])))
