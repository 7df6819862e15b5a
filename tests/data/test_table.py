import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from image_files import class_folder, voc_folder
from orbithash.data import ImageFiles, Split, class_folders, image_table, write_image_table
from orbithash.data.benchmarks.voc2007 import read_voc2007
from orbithash.data.sources import open_source
from orbithash.errors import InputError, MissingExtraError


def table(folder, text: str):
    (folder / "images.csv").write_text(text, encoding="utf-8")
    return folder / "images.csv"


def test_single_labels_become_one_number_per_image(tmp_path):
    file = table(tmp_path, "path,labels\na.jpg,dog\nsub/b.jpg,cat\nc.jpg,dog\nd.jpg,dog\n")
    pets = open_source(str(file))
    assert pets.classes == ("cat", "dog")
    assert pets.labels.tolist() == [1, 0, 1, 1]
    assert pets.file(1) == tmp_path / "sub/b.jpg"
    assert len(pets.split.query) == 1


def test_several_labels_become_a_column_per_class(tmp_path):
    file = table(tmp_path, "path,labels\na.jpg,dog; person\nb.jpg,cat\nc.jpg,cat\n")
    pets = image_table(file)
    assert pets.classes == ("cat", "dog", "person")
    assert pets.labels.tolist() == [[False, True, True], [True, False, False], [True, False, False]]


def test_an_undivided_table_needs_no_queries(tmp_path):
    file = table(tmp_path, "path,labels\na.jpg,dog\nb.jpg,cat\n")
    with pytest.raises(InputError, match="no query can be chosen"):
        image_table(file)
    split = image_table(file, undivided=True).split
    assert split.train.tolist() == [0, 1]
    assert not split.has_queries
    marked = table(tmp_path, "path,labels,split\na.jpg,dog,query\nb.jpg,cat,query\n")
    assert not image_table(marked, undivided=True).split.has_queries


def test_an_undivided_table_keeps_its_queries_and_database(tmp_path):
    file = table(tmp_path, "path,labels,split\na.jpg,x,query\nb.jpg,x,database\nc.jpg,y,train\n")
    split = image_table(file, undivided=True).split
    assert (split.query.tolist(), split.database.tolist()) == ([0], [1])
    rows = "".join(f"{row}.jpg,x\n" for row in range(30))
    unmarked = table(tmp_path, "path,labels\n" + rows)
    np.testing.assert_array_equal(
        image_table(unmarked, undivided=True).split.query, image_table(unmarked).split.query
    )


def test_a_split_may_put_an_image_into_several_parts_or_none(tmp_path):
    rows = "a.jpg,x,train+database\nb.jpg,x,query\nc.jpg,y,database\nd.jpg,y,\n"
    split = image_table(table(tmp_path, "path,labels,split\n" + rows)).split
    assert (split.train.tolist(), split.query.tolist()) == ([0], [1])
    assert split.database.tolist() == [0, 2]


def test_tables_from_spreadsheets_are_read(tmp_path):
    rows = '"a, b.jpg",x,hm\r\nc.jpg,x,\r\nd.jpg,x,\r\n'
    file = table(tmp_path, f"\ufeffpath,labels,notes\r\n{rows}")
    assert image_table(file).paths == ("a, b.jpg", "c.jpg", "d.jpg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'path', only none"),
        ("path,label\na.jpg,x\n", "no column 'labels', only path, label"),
        ("path,labels\n", "has no rows"),
        ("path,labels\na.jpg,;\n", "no image of .* has a label"),
        ("path,labels\na.jpg,x\nb.jpg,\n", "line 3 .* lacks a path or a label"),
        ("path,labels\na.jpg\n", "line 2 .* lacks a path or a label"),
        ("path,labels,split\na.jpg,x,test\n", "line 2 .*'test'; join train, query and database"),
        ("path,labels,split\na.jpg,x,train+database\n", "no query images"),
        ("path,labels,split\na.jpg,x,train+query\n", "no database images"),
    ],
)
def test_an_invalid_table_is_refused_with_the_reason(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        image_table(table(tmp_path, text))


def test_a_table_for_training_alone_needs_no_queries(tmp_path):
    pets = image_table(table(tmp_path, "path,labels,split\na.jpg,x,train\nb.jpg,y,train\n"))
    assert pets.split.train.tolist() == [0, 1]
    assert not pets.split.has_queries


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "images.csv").write_bytes("path,labels\nä.jpg,x\n".encode("latin-1"))
    with pytest.raises(InputError, match="save it as CSV in UTF-8"):
        image_table(tmp_path / "images.csv")


def parquet_table(folder, columns: dict[str, list]):
    parquet.write_table(pyarrow.table(columns), folder / "images.parquet")
    return folder / "images.parquet"


def test_a_parquet_table_is_read_like_the_same_csv(tmp_path):
    columns = {
        "path": ["a.jpg", "sub/b.jpg", "c.jpg"],
        "labels": ["dog; person", "cat", "dog"],
        "split": ["train+database", "query", "database"],
        "notes": [1, None, 3],
    }
    pets = open_source(str(parquet_table(tmp_path, columns)))
    rows = "".join(f"{','.join(map(str, row))}\n" for row in zip(*columns.values(), strict=True))
    same = image_table(table(tmp_path, "path,labels,split,notes\n" + rows))
    assert (pets.paths, pets.classes) == (same.paths, same.classes)
    np.testing.assert_array_equal(pets.labels, same.labels)
    np.testing.assert_array_equal(pets.split.database, same.split.database)


def test_a_parquet_tables_labels_may_be_lists_or_numbers(tmp_path):
    lists = {"path": ["a.jpg", "b.jpg"], "labels": [["dog", "person"], ["cat"]]}
    pets = image_table(parquet_table(tmp_path, lists), undivided=True)
    assert pets.labels.sum(axis=1).tolist() == [2, 1]
    numbers = {"path": ["a.jpg", "b.jpg", "c.jpg"], "labels": [7, 3, 7]}
    pets = image_table(parquet_table(tmp_path, numbers), undivided=True)
    assert pets.classes == ("3", "7")
    assert pets.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": ["a.jpg"], "label": ["x"]}, "no column 'labels', only path"),
        ({"path": ["a.jpg", "b.jpg"], "labels": ["x", None]}, "row 1 .* lacks a path or a label"),
        ({"path": [], "labels": []}, "has no rows"),
    ],
)
def test_an_invalid_parquet_table_is_refused_with_the_reason(columns, message, tmp_path):
    with pytest.raises(InputError, match=message):
        image_table(parquet_table(tmp_path, columns))


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    (tmp_path / "images.parquet").write_text("path,labels\na.jpg,x\n")
    with pytest.raises(InputError, match="save it as Parquet again"):
        image_table(tmp_path / "images.parquet")


def test_a_parquet_table_whose_columns_have_no_names_in_utf_8_is_refused(tmp_path):
    file = parquet_table(tmp_path, {"path": ["a.jpg"], "labels": ["x"], "another": ["y"]})
    file.write_bytes(file.read_bytes().replace(b"another", b"\xffnother"))
    with pytest.raises(InputError, match="save it as Parquet again"):
        image_table(file)


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
    file = parquet_table(tmp_path, {"path": ["a.jpg"], "labels": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[parquet\]'"):
        image_table(file)


def test_a_written_table_reads_back_the_same(tmp_path):
    pets = class_folders(class_folder(tmp_path / "pets", {"cat": 5, "dog, big": 5}))
    write_image_table(pets, tmp_path / "split.csv")
    again = image_table(tmp_path / "split.csv")
    assert again.paths == tuple(f"pets/{path}" for path in pets.paths)
    assert again.classes == pets.classes
    np.testing.assert_array_equal(again.labels, pets.labels)
    np.testing.assert_array_equal(again.split.query, pets.split.query)


@pytest.mark.parametrize("name", ["cats; dogs", " cat", "cat ", ";", "a\nb", 'a "b", c'])
def test_a_class_may_have_any_name(name, tmp_path):
    images = ImageFiles(
        root=tmp_path,
        paths=("a.jpg", "b.jpg", "c.jpg"),
        labels=np.array([1, 0, 0]),
        classes=tuple(sorted([name, "bird"])),
        split=Split(np.arange(2), np.array([2]), np.arange(2)),
    )
    write_image_table(images, tmp_path / "split.csv")
    again = image_table(tmp_path / "split.csv")
    assert again.classes == images.classes
    assert again.labels.tolist() == images.labels.tolist()
    assert again.split.query.tolist() == [2]


def test_several_labels_of_which_one_has_a_semicolon_cannot_be_written(tmp_path):
    labels = np.array([[True, True], [True, False]])
    images = ImageFiles(tmp_path, ("a.jpg", "b.jpg"), labels, ("a;b", "c"), Split(np.arange(2)))
    with pytest.raises(InputError, match="'a;b' has a ;"):
        write_image_table(images, tmp_path / "split.csv")


@pytest.mark.parametrize("row", ["a\0.jpg,x", "a.jpg,x\0y"])
def test_a_table_with_nul_is_refused_with_the_line(row, tmp_path):
    with pytest.raises(InputError, match=r"line 3 of .* not valid text"):
        image_table(table(tmp_path, f"path,labels\nb.jpg,x\n{row}\n"))


def test_images_without_any_label_are_written_and_read(tmp_path):
    voc = read_voc2007(voc_folder(tmp_path / "VOC2007"))
    write_image_table(voc, tmp_path / "split.csv")
    again = image_table(tmp_path / "split.csv")
    unlabelled = ~voc.labels.any(axis=1)
    assert unlabelled.sum() == 1
    np.testing.assert_array_equal(~again.labels.any(axis=1), unlabelled)
    np.testing.assert_array_equal(again.split.database, voc.split.database)
