"""The examples run as their first lines say, on tiny images."""

import subprocess
import sys
from pathlib import Path

import pytest

from coloured_images import coloured

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    coloured(folder / "photos")
    shown = run_example(
        "3_train_on_your_images.py", folder / "photos", folder / "run", "small-cnn", 6
    )
    return folder, shown


def test_training_on_images_shows_how_it_goes(trained):
    _, shown = trained
    assert shown.count("epoch") == 6
    assert "MAP of its queries: " in shown


def test_a_folder_is_encoded(trained):
    folder, _ = trained
    lines = run_example("1_encode_a_folder.py", folder / "run", folder / "photos").splitlines()
    assert len(lines) == 32
    assert all(len(line.split()[0]) == 8 for line in lines)


def test_the_second_time_only_the_search_is_left(trained):
    folder, _ = trained
    given = (folder / "run", folder / "photos", folder / "photos.orbit")
    query = folder / "photos" / "0" / "1.png"
    assert run_example("2_search.py", *given, query).startswith("32 new")
    by_another_name = (folder / "run", folder / "run" / ".." / "photos", folder / "photos.orbit")
    again = run_example("2_search.py", *by_another_name, query)
    assert again.startswith("0 new, 0 changed, 32 as before\n1. 0 bits: ")
    assert again.count("bits:") == 5


def test_a_loss_of_ones_own_trains():
    scores = dict(line.split(": MAP ") for line in run_example("4_add_a_loss.py").splitlines())
    assert set(scores) == {"contrastive", "order-aware"}
    assert float(scores["contrastive"]) > 0.5
