import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from image_files import cub_folder
from orbithash.cli import run
from orbithash.data import read_features
from orbithash.networks import GoogLeNet


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "googlenet.safetensors"
    torch.manual_seed(0)
    save_file(GoogLeNet().state_dict(), file)
    return file


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return cub_folder(tmp_path_factory.mktemp("cub"), species=2, images_each=2)


def command(birds, weights, out) -> list[str]:
    return [
        *("features", f"cub200_2011:{birds}", "--backbone", "googlenet"),
        *("--weights", str(weights), "--out", str(out)),
    ]


def test_features_of_a_benchmark_are_written_with_labels_and_split(
    birds, weights, tmp_path, capsys
):
    out = tmp_path / "birds.npz"
    assert run(command(birds, weights, out)) == 0
    data = read_features(out)
    assert data.features.shape == (4, 1024)
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.split.query.tolist() == [0, 2]
    assert "Features of 4 images" in capsys.readouterr().out
    assert run(command(birds, weights, out)) == 0
    assert "Already done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--backbone", "resnet"), "there is no backbone 'resnet'"),
        (("--weights", "none.safetensors"), "weights file not found"),
        (("--out", "birds.csv"), "ends in .npz"),
        (("--device", "gpu"), "cannot run a network on 'gpu' here"),
        (("--out", "."), "--out is the folder .; give a file"),
    ],
)
def test_wrong_arguments_give_one_line_and_exit_code_2(
    birds, weights, tmp_path, capsys, change, message
):
    # The last of two equal options counts.
    assert run([*command(birds, weights, tmp_path / "birds.npz"), *change]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_image_files_is_refused(weights, tmp_path, capsys):
    arguments = command("", weights, tmp_path / "birds.npz")
    arguments[1] = "digits"
    assert run(arguments) == 2
    assert "digits has no image files" in capsys.readouterr().err


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from orbithash.cli import run; code = run(['features', '--help']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--backbone" in done.stdout
