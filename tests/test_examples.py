"""The examples run as their first lines say, on small data, and use only public names."""

import ast
import json
import re
import tempfile
from pathlib import Path

import matplotlib
import pytest
import torch

from clean_processes import start_program
from coloured_images import coloured
from orbithash.networks import GoogLeNet, load_photo_backbone

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_an_example_uses_only_public_names(example):
    for node in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
        modules, names = [], []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules, names = [node.module], [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        ours = [module for module in modules if module.partition(".")[0] == "orbithash"]
        assert all(module.count(".") <= 1 for module in ours), ours
        parts = [part for name in (*modules, *names) for part in name.split(".")]
        assert not [part for part in parts if part.startswith("_")]


def test_the_first_four_examples_fit_on_two_screens():
    examples = [file.read_text(encoding="utf-8") for file in EXAMPLES.glob("[1-4]_*.py")]
    assert len(examples) == 4
    assert sum(len(example.splitlines()) for example in examples) <= 88


def run_example(name: str, *arguments: object) -> str:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output.txt"
        process = start_program(EXAMPLES / name, list(map(str, arguments)), output=output)
        process.join()
        shown = output.read_text(encoding="utf-8")
    assert process.exitcode == 0, shown
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda file: file.name)
def test_a_notebook_runs_from_top_to_bottom(notebook, monkeypatch, capsys):
    matplotlib.use("Agg")
    monkeypatch.chdir(EXAMPLES)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs")]  # committed without outputs
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert "±" in capsys.readouterr().out or names["scores"].map > 0.8


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    coloured(folder / "photos")
    shown = run_example(
        "1_train_on_your_photos.py", folder / "photos", folder / "run", "small-cnn", 6
    )
    return folder, shown


def test_training_on_photos_shows_each_epoch_and_the_score(trained):
    folder, shown = trained
    assert len(re.findall(r"epoch \d+: loss \d", shown)) == 6
    assert re.search(r"MAP of the queries: [01]\.\d{4}\n", shown)
    again = run_example(
        "1_train_on_your_photos.py", folder / "photos", folder / "run", "small-cnn", 6
    )
    assert again == shown  # the finished run is loaded


def test_a_second_search_encodes_nothing(trained):
    folder, _ = trained
    arguments = (folder / "run", folder / "photos", folder / "photos.orbit")
    query = folder / "photos" / "0" / "1.png"
    assert run_example("2_search.py", *arguments, query).startswith("32 new")
    by_another_name = (folder / "run", folder / "run" / ".." / "photos", folder / "photos.orbit")
    again = run_example("2_search.py", *by_another_name, query)
    counts, *hits = again.splitlines()
    assert counts == "0 new, 0 changed, 32 as before"
    assert [hit.partition(". ")[0] for hit in hits] == ["1", "2", "3", "4", "5"]
    distances = [float(re.findall(r"\d+\.\d\d(?=:)", hit)[0]) for hit in hits]
    assert distances == sorted(distances)


def test_arrays_and_a_dataset_train():
    features, *epochs = run_example("3_train_on_features.py").splitlines()
    assert float(features.removeprefix("features: MAP ")) > 0.9
    losses = [float(line.partition("loss ")[2]) for line in epochs]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_a_loss_of_ones_own_trains():
    scores = dict(line.split(": MAP ") for line in run_example("4_add_a_loss.py").splitlines())
    assert set(scores) == {"contrastive", "order-aware"}
    assert float(scores["contrastive"]) > 0.5


def test_drawn_pictures_are_the_same_every_time(tmp_path):
    shown = run_example("draw_pictures.py", tmp_path / "once", 1)
    assert shown.startswith("12 kinds with 1 pictures each")
    run_example("draw_pictures.py", tmp_path / "again", 2)
    drawn = sorted((tmp_path / "once").rglob("*.jpg"))
    assert len({picture.parent.name for picture in drawn}) == len(drawn) == 12
    for picture in drawn:
        same = tmp_path / "again" / picture.relative_to(tmp_path / "once")
        assert picture.read_bytes() == same.read_bytes()


def varint(value):
    piece = bytearray()
    while value > 127:
        piece.append(value & 127 | 128)
        value >>= 7
    return bytes([*piece, value])


def field(number, content):
    """Encode a field of a Protocol Buffers message: an integer, or bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def caffe_blob(values, *, old):
    dimensions = [1] * (4 - values.ndim) + list(values.shape)
    shape = (
        b"".join(field(number, size) for number, size in enumerate(dimensions, start=1))
        if old
        else field(7, field(1, b"".join(map(varint, values.shape))))
    )
    return shape + field(5, values.astype("<f4").tobytes())


CAFFE_NAMES = {
    "branch1.conv": "1x1",
    "branch2.0.conv": "3x3_reduce",
    "branch2.1.conv": "3x3",
    "branch3.0.conv": "5x5_reduce",
    "branch3.1.conv": "5x5",
    "branch4.1.conv": "pool_proj",
    "conv1.conv": "conv1/7x7_s2",
    "conv2.conv": "conv2/3x3_reduce",
    "conv3.conv": "conv2/3x3",
}


def caffe_name(name):
    block, _, layer = name.partition(".")
    if name in CAFFE_NAMES:
        return CAFFE_NAMES[name]
    return f"{block[:9]}_{block[9:]}/{CAFFE_NAMES[layer]}"


@pytest.mark.parametrize("old", [False, True], ids=["layer", "layers of 2014"])
def test_caffes_googlenet_is_converted_and_loads(tmp_path, old):
    network = GoogLeNet()
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    file_field, name_field, blob_field = (2, 4, 6) if old else (100, 1, 7)
    names = [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]
    model = field(1, b"GoogleNet") + field(file_field, field(name_field, b"data"))
    for name in names:
        blobs = [weights[f"{name}.weight"], weights[f"{name}.bias"]]
        layer = field(name_field, caffe_name(name).encode())
        layer += b"".join(field(blob_field, caffe_blob(blob, old=old)) for blob in blobs)
        model += field(file_field, layer)
    (tmp_path / "googlenet.caffemodel").write_bytes(model)
    given = (tmp_path / "googlenet.caffemodel", tmp_path / "googlenet.safetensors")
    assert run_example("5_convert_googlenet.py", *given).startswith("114 arrays")
    loaded = load_photo_backbone("googlenet", given[1]).state_dict()
    assert all(torch.equal(loaded[name], torch.from_numpy(weights[name])) for name in weights)
