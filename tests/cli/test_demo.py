from functools import partial
from pathlib import Path

import pytest

import orbithash
from orbithash.cli import run
from orbithash.experiments import demo
from orbithash.hashers import HASHERS


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The same way with as little of everything as there can be."""
    small = partial(
        demo.run_demo,
        n_bits=(8,),
        n_runs=1,
        epochs=1,
        trial_epochs=1,
        margins=(),
        learning_rates=(0.01,),
    )
    monkeypatch.setattr(demo, "run_demo", small)
    monkeypatch.setattr(demo, "HASHERS", {"lsh": HASHERS["lsh"]})


def test_demo_prints_the_table_the_report_and_the_next_command(tmp_path, capsys):
    out = tmp_path / "new" / "report"
    assert run(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for expected in ("order-aware", "triplet", "lsh", "8 bits", "bounds"):
        assert expected in printed
    assert str(out / "report.html") in printed
    assert (out / "report.html").exists()
    # The last line is a command, and the index that it names shows its images.
    assert printed.rstrip().endswith(f"serve {out / 'digits.orbit'}")
    with orbithash.open_index(out / "digits.orbit") as index:
        assert all(Path(item.path).is_file() for item in index.sample(20, seed=0).metadata)
    assert [path.name for path in out.parent.iterdir()] == ["report"]


@pytest.mark.slow
def test_demo_replaces_its_own_report_only_when_forced(tmp_path, capsys):
    assert run(["demo", "--out", str(tmp_path / "report")]) == 0
    page = tmp_path / "report" / "report.html"
    page.write_text("mine")
    capsys.readouterr()
    assert run(["demo", "--out", str(tmp_path / "report")]) == 2
    error = capsys.readouterr().err
    assert "add --force" in error
    assert len(error.splitlines()) == 1
    assert page.read_text() == "mine"
    assert run(["demo", "--out", str(tmp_path / "report"), "--force"]) == 0
    assert page.read_text() != "mine"


def test_a_failed_demo_leaves_nothing_and_its_error_is_not_hidden(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("no luck")

    monkeypatch.setattr(demo, "write_report", fail)
    with pytest.raises(RuntimeError, match="no luck"):
        run(["demo", "--out", str(tmp_path / "report")])
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_leaves_nothing(tmp_path, monkeypatch, capsys):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "write_report", interrupt)
    assert run(["demo", "--out", str(tmp_path / "report")]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_demo_says_how_to_install_the_server_where_it_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("orbithash.cli.demo.NEEDED", ("no_such_package",))
    assert run(["demo", "--out", str(tmp_path / "report")]) == 0
    *_, install, serve = capsys.readouterr().out.splitlines()
    assert install == "  pip install 'orbithash[serve]'"
    assert "serve" in serve
