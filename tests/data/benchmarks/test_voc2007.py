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


def test_split_is_train_for_training_trainval_for_the_database_and_test_for_queries(tmp_path):
    voc = open_source(f"voc2007:{voc_folder(tmp_path)}")
    assert voc.paths == tuple(f"JPEGImages/{number:06d}.jpg" for number in range(1, 7))
    assert voc.split.query.tolist() == [3, 5]
    assert voc.split.database.tolist() == [0, 1, 2, 4]
    assert voc.split.train.tolist() == [0, 2]
    assert all(voc.file(row).is_file() for row in range(len(voc)))


def test_labels_are_the_classes_of_all_objects_that_are_not_difficult(tmp_path):
    voc = read_voc2007(voc_folder(tmp_path))
    assert voc.classes == CLASSES
    assert voc.labels.shape == (6, 20)
    assert labels_by_name(voc) == {
        "JPEGImages/000001.jpg": {"dog", "person"},  # one person is difficult, another is not
        "JPEGImages/000002.jpg": {"person"},  # the chair is difficult
        "JPEGImages/000003.jpg": {"car"},  # two of them
        "JPEGImages/000004.jpg": {"dog"},
        "JPEGImages/000005.jpg": set(),  # only a difficult sofa
        "JPEGImages/000006.jpg": {"person", "tvmonitor"},
    }


def test_a_warning_counts_the_images_without_labels(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        read_voc2007(voc_folder(tmp_path))
    assert "1 images have only difficult objects" in caplog.text


def test_labels_agree_with_the_lists_of_single_classes(tmp_path):
    # 1: the class is present; 0: only as difficult objects; -1: absent.
    voc = read_voc2007(voc_folder(tmp_path))
    lines = (tmp_path / "ImageSets/Main/chair_trainval.txt").read_text().split("\n")[:-1]
    for line in lines:
        image, mark = line.split()
        row = voc.paths.index(f"JPEGImages/{image}.jpg")
        assert voc.labels[row, CLASSES.index("chair")] == (mark == "1")


def test_lists_with_a_number_after_each_image_are_read(tmp_path):
    expected = read_voc2007(voc_folder(tmp_path)).split
    (tmp_path / "ImageSets/Main/train.txt").write_text("000003 -1\n000001  1\n")
    np.testing.assert_array_equal(read_voc2007(tmp_path).split.train, expected.train)


@pytest.mark.parametrize("inner", ["VOC2007", "VOCdevkit/VOC2007"])
def test_a_parent_folder_of_the_devkit_is_accepted(inner, tmp_path):
    voc_folder(tmp_path / inner)
    voc = read_voc2007(tmp_path)
    assert len(voc) == 6
    assert voc.root == tmp_path / inner


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("ImageSets/Main/test.txt", r"test.txt is missing; unpack .*VOCtest_06-Nov-2007.tar"),
        ("ImageSets/Main/train.txt", r"Main/train.txt is missing"),
        ("ImageSets/Main/trainval.txt", r"Main/trainval.txt is missing"),
        ("JPEGImages/000004.jpg", r"1 of 6 images are missing, the first is .*000004.jpg;"),
        ("Annotations/000006.xml", r"1 of 6 annotations are missing, the first is .*000006.xml;"),
    ],
)
def test_missing_files_are_named(missing, message, tmp_path):
    (voc_folder(tmp_path) / missing).unlink()
    with pytest.raises(InputError, match=message):
        read_voc2007(tmp_path)


def test_a_folder_in_another_layout_is_refused(tmp_path):
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


def test_an_object_without_the_difficult_element_is_not_difficult(tmp_path):
    # Annotations of other years and tools omit the element.
    file = voc_folder(tmp_path) / "Annotations/000005.xml"
    file.write_text("<annotation><object><name> sofa\n</name></object></annotation>")
    assert labels_by_name(read_voc2007(tmp_path))["JPEGImages/000005.jpg"] == {"sofa"}
