"""Names of files and classes that a stranger chose: they are printed, and command no terminal."""

import json
import logging
import os

import numpy as np
import pytest

from coloured_images import coloured
from feature_files import clouds
from image_files import noise, save
from indexed_runs import image_run
from orbithash.cli import VisibleNames, run

NAME = "\x1b]0;pwned\x07\x1b[2Ja\nb\x9b31m\u202ejpg.png"


@pytest.fixture
def photos(tmp_path):
    """A folder of photographs; a name of one of them commands a terminal, another is no UTF-8."""
    coloured(tmp_path / "photos", classes=2, per_class=4)
    save(noise((32, 32)), tmp_path / "photos" / "0" / NAME)
    os.mkdir(os.fsencode(tmp_path / "photos") + b"/\xfe")  # noqa: PTH102 — a name of bytes
    (tmp_path / "photos" / "1" / "0.png").rename(
        os.fsdecode(os.fsencode(tmp_path / "photos") + b"/\xfe/\xff.png")
    )
    return tmp_path / "photos"


def test_an_index_of_such_files_is_made_and_searched(photos, tmp_path, capfd, caplog):
    out = tmp_path / "photos.orbit"
    assert run(["index", str(image_run(tmp_path / "run")), str(photos), "--out", str(out)]) == 0
    assert "1 whose name is not UTF-8" in caplog.text
    capfd.readouterr()
    image = str(photos / "0" / NAME)
    assert run(["search", str(out), image, "-k", "8"]) == 0
    assert r"a\u000ab" in assert_harmless(capfd.readouterr()).replace("\n", "")
    assert run(["search", str(out), image, "-k", "8", "--json"]) == 0
    (found,) = json.loads(assert_harmless(capfd.readouterr()))
    assert len(found["hits"]) == 8
    assert found["query"] == image
    (photos / "0" / NAME).write_text("no image")
    assert run(["search", str(out), image]) == 2
    assert len(assert_harmless(capfd.readouterr()).splitlines()) == 1
    (photos / "0" / NAME).unlink()
    assert run(["index", str(tmp_path / "run"), str(photos), "--out", str(out)]) == 0
    assert r"\u001b[2Ja\u000ab" in assert_harmless(capfd.readouterr())


def test_features_of_such_a_name_train_and_are_scored_but_an_index_refuses_it(tmp_path, capfd):
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npz")
    np.savez(file, **clouds())
    trained, out = str(tmp_path / "run"), tmp_path / "features.orbit"
    assert run(["train", file, "--method", "lsh", "--bits", "8", "--out", trained]) == 0
    assert run(["evaluate", trained, file, "--out", str(tmp_path / "report")]) == 0
    assert r"\udcff.npz" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    capfd.readouterr()
    assert run(["index", trained, file, "--out", str(out)]) == 2
    assert r"\udcff.npz' is not valid text; rename the file" in capfd.readouterr().err
    assert not out.exists()


def test_codes_in_a_file_of_such_a_name_leave_no_empty_index(tmp_path, capfd):
    file, out = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npz"), tmp_path / "codes.orbit"
    np.savez(file, codes=np.zeros((4, 1), np.uint8), n_bits=8)
    assert run(["index", "--codes", file, "--out", str(out)]) == 2
    assert r"\udcff.npz' is not valid text; rename the file" in capfd.readouterr().err
    assert not out.exists()


def test_a_warning_shows_such_a_name_in_one_line():
    record = logging.LogRecord("orbithash", logging.WARNING, "", 0, "left out %s", (NAME,), None)
    assert r"left out \u001b]0;pwned\u0007" in VisibleNames().format(record)
    assert "\n" not in VisibleNames().format(record)


def assert_harmless(printed):
    text = printed.out + printed.err
    assert not [character for character in text if not character.isprintable() and character > "\n"]
    return text
