import logging

import numpy as np
import pytest

from image_files import voc_folder
from orbithash.data.benchmarks.voc2007 import CLASSES, read_voc2007
from orbithash.data.sources import open_source
from orbithash.errors import InputError


def labels_by_name(source) -> dict[str, set[str]]:
    return {
        path: {source.classes[column] for column in np.flatnonzero(row)}
        for path, row in zip(source.paths, source.labels, strict=True)
    }


def test_test_images_are_queries_trainval_the_database_and_only_train_trains(tmp_path):
    voc = open_source(f"voc2007:{voc_folder(tmp_path)}")
    assert voc.paths == tuple(f"JPEGImages/{number:06d}.jpg" for number in range(1, 7))
    assert voc.split.query.tolist() == [3, 5]
    assert voc.split.database.tolist() == [0, 1, 2, 4]
    assert voc.split.train.tolist() == [0, 2]
    assert all(voc.file(row).is_file() for row in range(len(voc)))


def test_an_image_has_the_label_of_everything_on_it_that_is_not_only_difficult(tmp_path):
    voc = read_voc2007(voc_folder(tmp_path))
    assert voc.classes == CLASSES
    assert voc.labels.shape == (6, 20)
    assert labels_by_name(voc) == {
        "JPEGImages/000001.jpg": {"dog", "person"},  # one person is difficult, another is not
        "JPEGImages/000002.jpg": {"person"},  # the chair is difficult
        "JPEGImages/000003.jpg": {"car"},  # two of them
        "JPEGImages/000004.jpg": {"dog"},
        "JPEGImages/000005.jpg": set(),  # nothing but a difficult sofa
        "JPEGImages/000006.jpg": {"person", "tvmonitor"},
    }


def test_images_without_any_label_are_told_of(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        read_voc2007(voc_folder(tmp_path))
    assert "1 images show nothing but difficult objects" in caplog.text


def test_labels_are_those_of_the_lists_for_one_class(tmp_path):
    # 1 has it, 0 shows it only as difficult, -1 has it not.
    voc = read_voc2007(voc_folder(tmp_path))
    lines = (tmp_path / "ImageSets/Main/chair_trainval.txt").read_text().split("\n")[:-1]
    for line in lines:
        image, answer = line.split()
        row = voc.paths.index(f"JPEGImages/{image}.jpg")
        assert voc.labels[row, CLASSES.index("chair")] == (answer == "1")


def test_lists_in_which_a_number_follows_the_image_are_read(tmp_path):
    expected = read_voc2007(voc_folder(tmp_path)).split
    (tmp_path / "ImageSets/Main/train.txt").write_text("000003 -1\n000001  1\n")
    np.testing.assert_array_equal(read_voc2007(tmp_path).split.train, expected.train)


@pytest.mark.parametrize("above", ["VOC2007", "VOCdevkit/VOC2007"])
def test_the_devkit_may_be_given_by_a_folder_above(above, tmp_path):
    voc_folder(tmp_path / above)
    voc = read_voc2007(tmp_path)
    assert len(voc) == 6
    assert voc.root == tmp_path / above


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("ImageSets/Main/test.txt", r"test.txt is missing; unpack .*VOCtest_06-Nov-2007.tar"),
        ("ImageSets/Main/train.txt", r"Main/train.txt is missing"),
        ("ImageSets/Main/trainval.txt", r"Main/trainval.txt is missing"),
        ("JPEGImages/000004.jpg", r"000004.jpg is missing, one of 1 missing images of 6"),
        ("Annotations/000006.xml", r"000006.xml is missing, one of 1 missing annotations of 6"),
    ],
)
def test_what_is_missing_is_named(missing, message, tmp_path):
    (voc_folder(tmp_path) / missing).unlink()
    with pytest.raises(InputError, match=message):
        read_voc2007(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"ImageSets/Main/train.txt is missing; .*VOCdevkit"):
        read_voc2007(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation><object>", "cannot read .*000003.xml"),
        ("", "cannot read .*000003.xml"),
        (
            "<annotation><object><name>unicorn</name></object></annotation>",
            "'unicorn', which is none of the 20 classes",
        ),
    ],
)
def test_a_damaged_annotation_is_refused(text, message, tmp_path):
    (voc_folder(tmp_path) / "Annotations/000003.xml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_voc2007(tmp_path)


def test_an_object_without_a_mark_is_not_difficult(tmp_path):
    # As in annotations of other years and tools, which leave the mark out.
    file = voc_folder(tmp_path) / "Annotations/000005.xml"
    file.write_text("<annotation><object><name> sofa\n</name></object></annotation>")
    assert labels_by_name(read_voc2007(tmp_path))["JPEGImages/000005.jpg"] == {"sofa"}
