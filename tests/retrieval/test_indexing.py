import time
from importlib import import_module

import numpy as np
import pytest

import orbithash
from image_files import class_folder
from indexed_runs import image_run
from orbithash.data import Vectors, all_images
from orbithash.encoders import runtime
from orbithash.errors import InputError
from orbithash.index import Metadata, add_under_new_ids
from orbithash.retrieval import index_of_run, index_source
from orbithash.retrieval.indexing import described


@pytest.fixture
def birds_run(tmp_path):
    return image_run(tmp_path / "run")


def test_the_network_is_exported_once_for_all_batches(birds_run, tmp_path, monkeypatch):
    made = []

    def counted(network, *, side):
        made.append(side)
        return lambda pixels: np.zeros((len(pixels), 24), np.float32)

    monkeypatch.setattr(runtime, "OnnxNetwork", counted)
    monkeypatch.setattr(runtime, "is_installed", lambda: True)
    monkeypatch.setattr(runtime, "WORTH_EXPORTING", 4)
    monkeypatch.setattr(import_module("orbithash.retrieval.indexing"), "BATCH", 4)
    images = all_images(class_folder(tmp_path / "photos", {"0": 5, "1": 5}))
    counts = []
    with index_of_run(tmp_path / "x.orbit", birds_run / "model.safetensors", n_bits=24) as index:
        report = index_source(
            index,
            orbithash.load(birds_run),
            images,
            source="photos",
            progress=lambda *both: counts.append(both),
        )
        assert report.new == len(index) == 10
        # The last, smaller batch too: with torch these codes would not all be 0.
        assert not any(items.codes.any() for items in index.iterate())
    assert len(made) == 1
    assert counts == [(4, 10), (8, 10), (10, 10)]


def test_another_process_may_add_meanwhile(birds_run, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("orbithash.retrieval.indexing"), "BATCH", 4)
    images = all_images(class_folder(tmp_path / "photos", {"0": 5, "1": 5}))
    encoder = orbithash.load(birds_run)
    address = tmp_path / "x.orbit"

    def others(done, total):
        if done == 4:
            with orbithash.open_index(address) as other:
                add_under_new_ids(other, np.zeros((3, 3), np.uint8), [Metadata("other.jpg")] * 3)
        if done == 8:  # the same command, elsewhere
            with orbithash.open_index(address) as other:
                index_source(other, encoder, images, source="photos")

    with index_of_run(address, birds_run / "model.safetensors", n_bits=24) as index:
        index_source(index, encoder, images, source="photos", progress=others)
        paths = [metadata.path for items in index.iterate() for metadata in items.metadata]
        assert paths.count("other.jpg") == 3
        assert sorted(set(paths) - {"other.jpg"}) == sorted(
            str(images.file(row)) for row in range(10)
        )
        assert len(paths) == 13


def test_an_item_that_is_listed_twice_is_found_in_a_long_list():
    paths = [f"{row}.jpg" for row in range(60_000)]
    paths[-1] = paths[-2]
    rows = Vectors(np.zeros((len(paths), 1), np.float32), paths=tuple(paths))
    started = time.process_time()
    with pytest.raises(InputError, match=r"photos lists 59998\.jpg twice"):
        described(rows, "photos")
    # Every path compared with every other would take a minute.
    assert time.process_time() - started < 10
