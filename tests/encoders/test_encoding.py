import numpy as np

from coloured_images import coloured
from feature_files import clouds
from image_files import noise, save
from indexed_runs import feature_run, image_run
from orbithash.data import LabelledFeatures, Split, Vectors, all_images
from orbithash.encoders import encode_source, load_run
from orbithash.encoders.encoding import (
    read_unreadable,
    unreadable_list,
    write_codes,
    write_unreadable,
)


def test_all_rows_of_features_are_encoded_or_some(tmp_path):
    encoder, vectors = load_run(feature_run(tmp_path / "run")), clouds()["features"]
    encoded = encode_source(encoder, Vectors(vectors))
    np.testing.assert_array_equal(encoded.rows, np.arange(100))
    np.testing.assert_array_equal(encoded.codes, encoder.encode(vectors))
    some = encode_source(encoder, Vectors(vectors), rows=np.array([7, 2]))
    np.testing.assert_array_equal(some.codes, encoded.codes[[7, 2]])


def test_unreadable_images_are_left_out_of_the_codes_and_listed(tmp_path):
    images = coloured(tmp_path / "images")
    images.file(3).write_text("no image")
    encoder = load_run(image_run(tmp_path / "run"))
    done = []
    encoded = encode_source(encoder, images, progress=lambda n, total: done.append((n, total)))
    assert done[-1] == (32, 32)
    assert encoded.rows.tolist() == [row for row in range(32) if row != 3]
    assert encoded.unreadable == {images.paths[3]: "not an image of a known format"}
    write_codes(tmp_path / "codes.npz", encoded, images)
    with np.load(tmp_path / "codes.npz", allow_pickle=False) as file:
        arrays = dict(file)
    known = {"ids", "codes", "n_bits", "labels", "classes", "paths", "query", "database"}
    assert arrays.keys() == known
    for part in ("query", "database"):
        rows = [row for row in getattr(images.split, part).tolist() if row != 3]
        assert arrays["ids"][arrays[part]].tolist() == rows
    np.testing.assert_array_equal(arrays["ids"], encoded.rows)
    np.testing.assert_array_equal(arrays["codes"], encoded.codes)
    np.testing.assert_array_equal(arrays["labels"], images.labels[encoded.rows])
    assert arrays["paths"].tolist() == [images.paths[row] for row in encoded.rows]
    assert arrays["n_bits"] == 24


def test_a_file_of_codes_has_labels_and_paths_only_where_they_are_known(tmp_path):
    made = clouds()
    encoder = load_run(feature_run(tmp_path / "run"))
    sources = {
        "bare": Vectors(made["features"]),
        "labelled": LabelledFeatures(made["features"], made["labels"], Split(made["train"])),
    }
    for name, data in sources.items():
        write_codes(tmp_path / f"{name}.npz", encode_source(encoder, data), data)
    with np.load(tmp_path / "bare.npz") as bare, np.load(tmp_path / "labelled.npz") as labelled:
        assert set(bare) == {"ids", "codes", "n_bits"}
        assert set(labelled) == {"ids", "codes", "n_bits", "labels"}


def test_images_outside_of_class_folders_have_no_labels_in_the_file_of_codes(tmp_path):
    save(noise((20, 20), seed=0), tmp_path / "flat" / "a.jpg")
    images = all_images(tmp_path / "flat")
    encoded = encode_source(load_run(image_run(tmp_path / "run")), images)
    write_codes(tmp_path / "codes.npz", encoded, images)
    with np.load(tmp_path / "codes.npz") as arrays:
        assert set(arrays) == {"ids", "codes", "n_bits", "paths"}


def test_the_list_of_unreadable_images_is_read_as_it_was_written(tmp_path):
    file = unreadable_list(tmp_path / "codes.npz")
    assert file == tmp_path / "codes.unreadable.txt"
    assert read_unreadable(file) == {}
    reasons = {"a b.jpg": "torn", "ä.jpg": "No such file or directory"}
    write_unreadable(reasons, file)
    assert read_unreadable(file) == reasons
    file.write_text(file.read_text() + "c.jpg\tto")  # a killed process was writing
    assert read_unreadable(file) == reasons
    write_unreadable({}, file)
    assert not file.exists()
