import pytest

from orbithash.data import image_table, open_source
from orbithash.errors import InputError


def table(folder, text: str):
    (folder / "images.csv").write_text(text, encoding="utf-8")
    return folder / "images.csv"


def test_one_label_each_becomes_one_number_each(tmp_path):
    file = table(tmp_path, "path,labels\na.jpg,dog\nsub/b.jpg,cat\nc.jpg,dog\n")
    pets = open_source(str(file))
    assert pets.classes == ("cat", "dog")
    assert pets.labels.tolist() == [1, 0, 1]
    assert pets.file(1) == tmp_path / "sub/b.jpg"
    assert len(pets.split.query) == 1


def test_several_labels_become_a_column_per_class(tmp_path):
    file = table(tmp_path, "path,labels\na.jpg,dog; person\nb.jpg,cat\n")
    pets = image_table(file)
    assert pets.classes == ("cat", "dog", "person")
    assert pets.labels.tolist() == [[False, True, True], [True, False, False]]


def test_a_split_may_put_an_image_into_several_parts_or_none(tmp_path):
    rows = "a.jpg,x,train+database\nb.jpg,x,query\nc.jpg,y,database\nd.jpg,y,\n"
    split = image_table(table(tmp_path, "path,labels,split\n" + rows)).split
    assert (split.train.tolist(), split.query.tolist()) == ([0], [1])
    assert split.database.tolist() == [0, 2]


def test_tables_from_spreadsheets_are_read(tmp_path):
    file = table(tmp_path, '\ufeffpath,labels,notes\r\n"a, b.jpg",x,hm\r\nc.jpg,x,\r\n')
    assert image_table(file).paths == ("a, b.jpg", "c.jpg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'path', only none"),
        ("path,label\na.jpg,x\n", "no column 'labels', only path, label"),
        ("path,labels\n", "has no rows"),
        ("path,labels\na.jpg,x\nb.jpg,\n", "line 3 .* lacks a path or a label"),
        ("path,labels\na.jpg\n", "line 2 .* lacks a path or a label"),
        ("path,labels,split\na.jpg,x,test\n", "line 2 .*'test'; join train, query and database"),
        ("path,labels,split\na.jpg,x,train\n", "no query images"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        image_table(table(tmp_path, text))


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "images.csv").write_bytes("path,labels\nä.jpg,x\n".encode("latin-1"))
    with pytest.raises(InputError, match="save it as CSV in UTF-8"):
        image_table(tmp_path / "images.csv")
