import logging
from dataclasses import replace

from coloured_images import coloured
from orbithash.data import Split
from orbithash.encoders.runs.split_file import trained_queries, write_split


def test_queries_that_trained_a_run_are_found_by_their_location(tmp_path):
    images = coloured(tmp_path / "images")
    (tmp_path / "run").mkdir()
    assert trained_queries(tmp_path / "run", images) == []
    write_split(images, tmp_path / "run")
    assert trained_queries(tmp_path / "run", images) == []
    some = images.split.train[:3]
    (tmp_path / "link").symlink_to(tmp_path / "images")
    for root in ("images", "link"):
        turned = replace(images, root=tmp_path / root, split=Split(images.split.query, some, some))
        assert trained_queries(tmp_path / "run", turned) == [images.paths[row] for row in some]


def test_a_split_without_queries_is_kept(tmp_path):
    images = coloured(tmp_path / "images")
    train_only = replace(images, split=Split(images.split.train))
    write_split(train_only, tmp_path)
    queries = replace(images, split=Split(images.split.query, images.split.train[:1], some(images)))
    assert len(trained_queries(tmp_path, queries)) == 1


def some(images):
    return images.split.query[:1]


def test_class_names_that_a_table_cannot_hold_leave_the_split_out(tmp_path, caplog):
    images = coloured(tmp_path / "images")
    odd = replace(images, classes=("a;b", *images.classes[1:]))
    with caplog.at_level(logging.WARNING):
        write_split(odd, tmp_path)
    assert "the split is not kept" in caplog.text
    assert not (tmp_path / "split.csv").exists()
