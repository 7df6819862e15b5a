"""The code in the pages runs as it is; blocks marked `py` need files that are not installed."""

import re
import shutil
from pathlib import Path

import pytest

from coloured_images import coloured
from orbithash.experiments.report.overview import overview_picture
from orbithash.experiments.report.show_results import PICTURE, refreshed
from orbithash.index import Index

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES_WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
SHORTER = {"own-loop.md": ("EPOCHS = 100", "EPOCHS = 10")}  # what the loop does, it does in each


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: page.name)
def test_the_pages_code_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    program = "\n".join(blocks)  # one page, one program
    long, short = SHORTER.get(page.name, ("", ""))
    assert long in program
    exec(compile(program.replace(long, short), page.name, "exec"), {})


def test_the_readmes_program_runs_on_photos(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.findall(r"```py\n(.*?)```", text, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    coloured(tmp_path / "photos")
    shutil.copy(tmp_path / "photos" / "0" / "0.png", tmp_path / "query.jpg")
    assert "efficientnet-lite0" in program
    exec(program.replace('"efficientnet-lite0"', '"small-cnn", epochs=2, workers=0'), {})
    score, *hits = capsys.readouterr().out.splitlines()
    assert 0 <= float(score) <= 1
    assert len(hits) == 10
    assert "query.jpg" not in hits[0]
    assert "photos/0/0.png" in hits[0]


def test_the_scores_that_the_page_on_conventions_shows_are_those_it_prints(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/how-to/score-codes.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w./-]+\.\w+)[)#]", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_results_are_the_committed_ones(page):
    text = page.read_text(encoding="utf-8")
    stale = "stale; run: make results"
    assert refreshed(text, ROOT / "experiments") == text, stale


def test_the_picture_shows_the_committed_results():
    assert PICTURE.as_posix() in (ROOT / "README.md").read_text(encoding="utf-8")
    stale = "stale; run: make results"
    assert overview_picture(ROOT / "experiments") == (ROOT / PICTURE).read_text("utf-8"), stale


def test_the_reference_names_every_method_of_an_index():
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"orbithash\.index\.Index\n.*?members: \[(.*?)\]", page, re.DOTALL)
    methods = {name for name in dir(Index) if not name.startswith("_") and name != "n_bits"}
    assert set(listed.split(", ")) == methods
