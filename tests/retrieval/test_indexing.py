import errno
import os
import shutil
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import orbithash
from image_files import class_folder
from indexed_runs import image_run
from orbithash.data import Vectors, all_images
from orbithash.encoders import runtime
from orbithash.errors import InputError
from orbithash.index import Metadata, add_under_new_ids
from orbithash.retrieval.indexing import source_items


@pytest.fixture
def encoder(tmp_path):
    return orbithash.load(image_run(tmp_path / "run"))


def test_the_network_is_exported_once_for_all_batches(encoder, tmp_path, monkeypatch):
    exported = []

    def counted(network, *, side):
        exported.append(side)
        return lambda pixels: np.zeros((len(pixels), encoder.n_features), np.float32)

    monkeypatch.setattr(runtime, "OnnxNetwork", counted)
    monkeypatch.setattr(runtime, "is_installed", lambda: True)
    monkeypatch.setattr(runtime, "WORTH_EXPORTING", 4)
    monkeypatch.setattr(import_module("orbithash.retrieval.indexing"), "BATCH", 4)
    photos = class_folder(tmp_path / "photos", {"0": 5, "1": 5})
    counts = []
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        report = index.add_images(photos, progress=lambda *both: counts.append(both))
        assert report.new == len(index) == 10
        # The last, smaller batch too: with torch the codes of two images would differ.
        codes = np.concatenate([items.codes for items in index.iterate()])
        assert len(np.unique(codes, axis=0)) == 1
    assert len(exported) == 1
    assert counts == [(4, 10), (8, 10), (10, 10)]


def test_another_process_may_add_meanwhile(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("orbithash.retrieval.indexing"), "BATCH", 4)
    photos = class_folder(tmp_path / "photos", {"0": 5, "1": 5})
    address = tmp_path / "x.orbit"

    def others(done, total):
        if done == 4:
            with orbithash.open_index(address) as other:
                codes, metadata = np.zeros((3, 3), np.uint8), [Metadata("other.jpg")] * 3
                add_under_new_ids(other.index, codes, metadata)
        if done == 8:  # the same call in another process
            with orbithash.open_index(address) as other:
                other.add_images(photos)

    with orbithash.open_index(address, encoder=encoder) as index:
        index.add_images(photos, progress=others)
        paths = [metadata.path for items in index.iterate() for metadata in items.metadata]
    images = all_images(photos)
    assert paths.count("other.jpg") == 3
    assert sorted(set(paths) - {"other.jpg"}) == sorted(str(images.file(row)) for row in range(10))
    assert len(paths) == 13


def test_two_runs_of_one_source_that_add_at_the_same_moment_store_each_image_once(
    encoder, tmp_path, monkeypatch
):
    photos, address = class_folder(tmp_path / "photos", {"0": 3}), tmp_path / "x.orbit"
    indexing = import_module("orbithash.retrieval.indexing")
    add = indexing.add_under_new_ids

    def add_second(*arguments):
        # After the first has looked, another process stores the same images.
        monkeypatch.setattr(indexing, "add_under_new_ids", add)
        with orbithash.open_index(address) as other:
            assert other.add_images(photos).new == 3
        return add(*arguments)

    with orbithash.open_index(address, encoder=encoder) as index:
        monkeypatch.setattr(indexing, "add_under_new_ids", add_second)
        report = index.add_images(photos)
        assert (report.new, report.changed, len(index)) == (0, 3, 3)


@pytest.mark.parametrize("fault", ["unreadable", "broken link", "not mounted"])
def test_only_what_is_known_to_be_gone_is_pruned(encoder, tmp_path, monkeypatch, fault):
    photos = class_folder(tmp_path / "photos", {"0": 2, "1": 3})
    source = photos
    if fault == "broken link":
        (photos / "1").rename(tmp_path / "elsewhere")
        (photos / "1").symlink_to(tmp_path / "elsewhere")
    if fault == "not mounted":
        class_folder(tmp_path / "disk", {"2": 3})
        source = tmp_path / "table.csv"
        files = [*sorted(photos.glob("0/*")), *sorted(tmp_path.glob("disk/*/*"))]
        source.write_text("path,labels\n" + "".join(f"{file},a\n" for file in files))
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        assert index.add_images(source).new == 5
        (photos / "0" / "1.jpg").unlink()
        with monkeypatch.context() as patch:
            if fault == "unreadable":
                forbid_listing(patch, photos / "1")
            elif fault == "broken link":
                (tmp_path / "elsewhere").rename(tmp_path / "away")
            else:
                (tmp_path / "disk").rename(tmp_path / "away")
            with pytest.raises(InputError, match="cannot tell whether 3 items are gone"):
                index.add_images(source, prune=True)
            assert len(index) == 5
            report = index.add_images(source)
            assert [path.name for path in map(Path, report.gone)] == ["1.jpg"]
            assert len(report.unreadable) == 3
        if fault != "unreadable":
            (tmp_path / "away").rename(
                tmp_path / "disk" if fault == "not mounted" else tmp_path / "elsewhere"
            )
        assert len(index.add_images(source, prune=True).gone) == 1
        assert len(index) == 4


def forbid_listing(patch, folder):
    scandir = os.scandir

    def refuse(path="."):
        if Path(os.fsdecode(path)) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    patch.setattr(os, "scandir", refuse)


def test_a_folder_that_was_deleted_as_a_whole_is_pruned(encoder, tmp_path):
    photos = class_folder(tmp_path / "photos", {"0": 2, "1": 3})
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add_images(photos)
        shutil.rmtree(photos / "1")
        assert len(index.add_images(photos, prune=True).gone) == 3
        assert len(index) == 2


def test_an_image_that_cannot_be_looked_at_is_not_gone(encoder, tmp_path, monkeypatch):
    photos = class_folder(tmp_path / "photos", {"0": 2})
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add_images(photos)
        stat = Path.stat

        def refuse(path, **options):
            if path.name == "1.jpg":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return stat(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", refuse)
            data = all_images(photos)
        # In a folder that forbids looking at files, they are listed and nothing more is known.
        assert data.unlisted == {"0/1.jpg": "Permission denied"}
        with pytest.raises(InputError, match="cannot tell whether 1 items are gone"):
            index.add_images(data, name=str(photos), prune=True)


def test_an_item_that_is_listed_twice_is_found_in_a_long_list():
    paths = [f"{row}.jpg" for row in range(60_000)]
    paths[-1] = paths[-2]
    rows = Vectors(np.zeros((len(paths), 1), np.float32), paths=tuple(paths))
    started = time.process_time()
    with pytest.raises(InputError, match=r"photos lists 59998\.jpg twice"):
        source_items(rows, "photos")
    # Comparing every path with every other would take a minute.
    assert time.process_time() - started < 10
