import numpy as np
import pytest
import torch
from torch import Tensor, nn

from image_files import class_folder, noise, save
from orbithash.data import class_folders, read_features
from orbithash.data.transforms import read_view
from orbithash.encoders.encoding import unreadable_list
from orbithash.encoders.extraction import extract
from orbithash.encoders.extraction.extract import extract_features
from orbithash.errors import InputError
from orbithash.networks import PhotoBackbone, View


class TinyBackbone(PhotoBackbone):
    """The mean colours of an image, mixed."""

    n_features = 5
    view = View(resize=16, crop=12)

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 5)
        with torch.no_grad():
            self.mix.weight.copy_(torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)))
            self.mix.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        return self.mix(images.mean((2, 3)) / 255)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(extract, "PART_SIZE", 4)


@pytest.fixture
def folder(tmp_path):
    return class_folder(tmp_path / "pets", {"cat": 6, "dog": 5})


@pytest.fixture
def out(tmp_path):
    return tmp_path / "features.npz"


class StoppedError(Exception):
    pass


def stop_after(n_images: int):
    def progress(done: int, total: int) -> None:
        if done >= n_images:
            raise StoppedError

    return progress


def test_every_image_gets_the_features_that_it_has_alone(folder, out):
    images, backbone = class_folders(folder), TinyBackbone()
    done = extract_features(images, backbone, out, batch_size=3)
    data = read_features(out)
    for row, features in enumerate(data.features):
        pixels = torch.from_numpy(read_view(images.file(row), resize=16, crop=12).copy())
        alone = backbone(pixels.permute(2, 0, 1)[None].float())
        np.testing.assert_allclose(features, alone[0].detach(), rtol=1e-5)
    assert (done.n_images, done.n_computed, done.n_unreadable) == (11, 11, 0)
    assert data.paths == images.paths
    assert data.classes == ("cat", "dog")
    np.testing.assert_array_equal(data.labels, images.labels)
    np.testing.assert_array_equal(data.split.query, images.split.query)


def test_a_stopped_run_goes_on_where_it_was_and_ends_the_same(folder, out, tmp_path):
    images = class_folders(folder)
    with pytest.raises(StoppedError):
        extract_features(images, TinyBackbone(), out, batch_size=2, progress=stop_after(10))
    assert not out.exists()
    seen = []
    done = extract_features(
        images, TinyBackbone(), out, batch_size=2, progress=lambda n, total: seen.append(n)
    )
    assert done.n_computed == 3  # two shards of four images were whole
    assert seen == [8, 10, 11]
    extract_features(images, TinyBackbone(), tmp_path / "at_once.npz", batch_size=2)
    at_once = read_features(tmp_path / "at_once.npz")
    np.testing.assert_array_equal(read_features(out).features, at_once.features)
    assert {path.name for path in tmp_path.iterdir()} == {"pets", "features.npz", "at_once.npz"}


@pytest.mark.parametrize("damage", ["cut", "another array", "fewer rows", "text"])
def test_a_damaged_part_is_one_clear_error_and_computed_again_afterwards(folder, out, damage):
    images = class_folders(folder)
    with pytest.raises(StoppedError):
        extract_features(images, TinyBackbone(), out, batch_size=2, progress=stop_after(10))
    part = out.with_name(out.name + ".partial") / "shard-000001.npz"
    if damage == "cut":
        part.write_bytes(part.read_bytes()[:-40])
    elif damage == "another array":
        np.savez(part, other=np.arange(3))
    elif damage == "fewer rows":
        np.savez(
            part, features=np.zeros((3, 2)), readable=np.ones(3, bool), reasons=np.array([], "U1")
        )
    else:
        part.write_text("no archive")
    with pytest.raises(InputError, match="were damaged and have been removed"):
        extract_features(images, TinyBackbone(), out, batch_size=2)
    assert extract_features(images, TinyBackbone(), out, batch_size=2).n_computed == 4


def test_a_finished_file_is_not_made_again(folder, out):
    images = class_folders(folder)
    extract_features(images, TinyBackbone(), out)
    before = out.stat().st_mtime_ns
    done = extract_features(images, TinyBackbone(), out)
    assert (done.n_images, done.n_computed) == (11, 0)
    assert out.stat().st_mtime_ns == before


def test_a_file_made_with_other_weights_or_images_is_replaced_only_by_force(folder, out):
    extract_features(class_folders(folder), TinyBackbone(), out)
    with pytest.raises(InputError, match="made with other weights; add --force"):
        extract_features(class_folders(folder), TinyBackbone(seed=1), out)
    save(noise((40, 30), seed=99), folder / "cat/0.jpg")
    with pytest.raises(InputError, match="made with other images; add --force"):
        extract_features(class_folders(folder), TinyBackbone(), out)
    done = extract_features(class_folders(folder), TinyBackbone(seed=1), out, force=True)
    assert done.n_computed == 11


def test_files_of_others_are_not_overwritten(folder, out):
    out.write_text("my thesis")
    with pytest.raises(InputError, match="exists and holds something else"):
        extract_features(class_folders(folder), TinyBackbone(), out)
    assert out.read_text() == "my thesis"


def test_features_that_somebody_else_made_are_not_overwritten(folder, out):
    extract_features(class_folders(folder), TinyBackbone(), out)
    with np.load(out) as archive:
        arrays = dict(archive)
    for note in ("by hand", "[1]", "{}"):
        np.savez(out, **(arrays | {"made_with": np.array(note)}))
        with pytest.raises(InputError, match="made with other backbone and weights and view"):
            extract_features(class_folders(folder), TinyBackbone(), out)


def test_an_unfinished_run_of_other_settings_is_not_mixed_in(folder, out):
    images = class_folders(folder)
    with pytest.raises(StoppedError):
        extract_features(images, TinyBackbone(), out, progress=stop_after(8))
    with pytest.raises(
        InputError, match="unfinished run with other weights; start again with --force"
    ):
        extract_features(images, TinyBackbone(seed=1), out)
    done = extract_features(images, TinyBackbone(seed=1), out, force=True)
    assert done.n_computed == 11


def test_force_goes_on_with_its_own_unfinished_run(folder, out):
    images = class_folders(folder)
    extract_features(images, TinyBackbone(), out)
    before = read_features(out).features
    with pytest.raises(StoppedError):
        extract_features(images, TinyBackbone(1), out, force=True, progress=stop_after(8))
    np.testing.assert_array_equal(read_features(out).features, before)
    assert extract_features(images, TinyBackbone(1), out, force=True).n_computed == 7


def test_unreadable_images_are_left_out_and_listed(folder, out):
    (folder / "cat/1.jpg").write_text("no image")
    (folder / "dog/4.jpg").write_bytes((folder / "dog/4.jpg").read_bytes()[:400])
    images = class_folders(folder)
    done = extract_features(images, TinyBackbone(), out, batch_size=2)
    data = read_features(out)
    assert (done.n_images, done.n_unreadable) == (9, 2)
    listed = unreadable_list(out).read_text().splitlines()
    assert listed[0] == "cat/1.jpg\tnot an image of a known format"
    assert listed[1].startswith("dog/4.jpg\tTruncated")

    left = [path for path in images.paths if path not in ("cat/1.jpg", "dog/4.jpg")]
    assert list(data.paths) == left
    for part in ("train", "query", "database"):
        expected = [images.paths[row] for row in getattr(images.split, part)]
        named = [data.paths[row] for row in getattr(data.split, part)]
        assert named == [path for path in expected if path in left]
    assert extract_features(images, TinyBackbone(), out).n_unreadable == 2


def test_a_batch_and_a_shard_of_nothing_but_unreadable_images_do_not_stop_a_run(folder, out):
    for number in range(4):
        (folder / f"cat/{number}.jpg").write_text("no image")
    extract_features(class_folders(folder), TinyBackbone(), out, batch_size=2)
    assert read_features(out).features.shape == (7, 5)


def test_nothing_readable_at_all_is_an_error(folder, out):
    images = class_folders(folder)
    for path in folder.rglob("*.jpg"):
        path.unlink()
    with pytest.raises(InputError, match=r"none of the 11 images .*cat/0.jpg: No such file"):
        extract_features(images, TinyBackbone(), out)
    assert {path.name for path in out.parent.iterdir()} == {"pets"}


def test_without_any_readable_query_nothing_is_left_behind(folder, out):
    images = class_folders(folder)
    for row in images.split.query.tolist():
        images.file(row).write_text("no image")
    with pytest.raises(InputError, match="no query images"):
        extract_features(images, TinyBackbone(), out)
    assert {path.name for path in out.parent.iterdir()} == {"pets"}


def test_a_folder_is_no_place_for_a_file(folder, out):
    out.mkdir()
    for force in (False, True):
        with pytest.raises(InputError, match=r"features.npz is a folder; give --out"):
            extract_features(class_folders(folder), TinyBackbone(), out, force=force)
    assert {path.name for path in out.parent.iterdir()} == {"pets", "features.npz"}


def test_the_list_of_unreadable_images_goes_when_all_can_be_read(folder, out):
    good = (folder / "cat/1.jpg").read_bytes()
    (folder / "cat/1.jpg").write_text("no image")
    extract_features(class_folders(folder), TinyBackbone(), out)
    (folder / "cat/1.jpg").write_bytes(good)
    extract_features(class_folders(folder), TinyBackbone(), out, force=True)
    assert not unreadable_list(out).exists()


def test_a_folder_that_moved_keeps_its_features(folder, out, tmp_path):
    extract_features(class_folders(folder), TinyBackbone(), out)
    folder.rename(tmp_path / "animals")
    done = extract_features(class_folders(tmp_path / "animals"), TinyBackbone(), out)
    assert done.n_computed == 0


def test_both_runtimes_give_the_same_features(folder, out, tmp_path):
    pytest.importorskip("onnxruntime")
    images = class_folders(folder)
    for runtime, file in (("torch", out), ("onnxruntime", tmp_path / "onnx.npz")):
        extract_features(images, TinyBackbone(), file, batch_size=3, runtime=runtime)
    by_torch, by_onnx = read_features(out), read_features(tmp_path / "onnx.npz")
    np.testing.assert_allclose(by_onnx.features, by_torch.features, rtol=1e-4)
    assert by_onnx.made_with != by_torch.made_with
    assert '"runtime": "onnxruntime"' in by_onnx.made_with


def test_one_file_is_never_made_by_two_runtimes(folder, out):
    pytest.importorskip("onnxruntime")
    images = class_folders(folder)
    with pytest.raises(StoppedError):
        extract_features(images, TinyBackbone(), out, runtime="onnxruntime", progress=stop_after(8))
    with pytest.raises(
        InputError, match="unfinished run with other runtime; start again with --force"
    ):
        extract_features(images, TinyBackbone(), out, runtime="torch")
    extract_features(images, TinyBackbone(), out, runtime="onnxruntime")
    # Once it is whole, it is what was asked for.
    assert extract_features(images, TinyBackbone(), out, runtime="torch").n_computed == 0


def test_a_place_that_cannot_be_written_is_named(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot create the folder"):
        extract_features(class_folders(folder), TinyBackbone(), tmp_path / "file/f.npz")


def test_further_views_are_parts_of_the_training_images_and_resume_as_they_were(folder, out):
    images, backbone = class_folders(folder), TinyBackbone()
    n_train = len(images.split.train)
    with pytest.raises(StoppedError):
        extract_features(images, backbone, out, n_views=2, progress=stop_after(len(images) + 3))
    extract_features(images, backbone, out, n_views=2)
    views = read_features(out).views
    assert views.of.tolist() == images.split.train.tolist() * 2
    assert len(np.unique(views.features, axis=0)) == 2 * n_train  # no two are alike
    whole = out.with_name("whole.npz")
    extract_features(images, backbone, whole, n_views=2)
    assert np.array_equal(read_features(whole).views.features, views.features)
    with pytest.raises(InputError, match="other number of views"):
        extract_features(images, backbone, out)


def test_an_unreadable_image_has_no_views(folder, out):
    images = class_folders(folder)
    broken = int(images.split.train[0])
    images.file(broken).write_bytes(b"no image")
    extract_features(images, TinyBackbone(), out, n_views=1)
    data = read_features(out)
    assert [data.paths[row] for row in data.views.of] == [
        images.paths[row] for row in images.split.train[1:]
    ]
    assert len(unreadable_list(out).read_text().splitlines()) == 1
