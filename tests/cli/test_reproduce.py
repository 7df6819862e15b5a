import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from clean_processes import start
from coloured_images import coloured, write_table
from feature_files import write_clouds
from orbithash.cli import run
from orbithash.experiments.tables import spec
from orbithash.experiments.tables.run import train_stages
from orbithash.experiments.tables.spec import read_table

AFTER_SOME_RUNS = 60  # file operations of a table's eight runs


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return write_clouds(tmp_path_factory.mktemp("features") / "clouds.npz")


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes seconds and has tests of its own."""
    monkeypatch.setattr("orbithash.experiments.reproduce.draw_table_figures", lambda *given: [])


def command(features, out, *arguments, table="ablation", epochs=2):
    quick = ("--bits", "8", "--seeds", "2", "--epochs", str(epochs))
    given = ("--source", str(features), "--out", str(out))
    return ["reproduce", table, *given, *quick, *arguments]


def test_a_table_is_made_once(features, tmp_path, capsys):
    assert run(command(features, tmp_path)) == 0
    assert "Order-aware" in capsys.readouterr().out
    table = tmp_path / "ablation"
    files = {"results.json", "table.md", "table.tex", "report.html", "figures"}
    assert {path.name for path in table.iterdir()} == files
    assert (table / "figures" / "training_8_bits.png").exists()
    drawn = (table / "report.html").stat().st_mtime_ns
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert len(runs) == 4 * 2
    written = (table / "results.json").read_text()

    assert run([*command(features, tmp_path), "--jobs", "2"]) == 0
    assert (table / "results.json").read_text() == written
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
    assert (table / "report.html").stat().st_mtime_ns == drawn  # at once: nothing is drawn again


@pytest.mark.usefixtures("no_figures")
def test_the_table_of_nested_codes_has_one_run_for_all_lengths(features, tmp_path):
    more = ("--bits", "8,16", "--seeds", "1")
    assert run(command(features, tmp_path, *more, table="nested")) == 0
    assert len(list(tmp_path.rglob("model.safetensors"))) == 3
    results = json.loads((tmp_path / "nested" / "results.json").read_text())
    assert results["missing"] == []
    alone, nested = results["rows"]
    assert [cell["n_bits"] for cell in nested["cells"]] == [8, 16]
    assert len({folder for cell in nested["cells"] for folder in cell["runs"]}) == 1
    assert len({folder for cell in alone["cells"] for folder in cell["runs"]}) == 2
    page = (tmp_path / "nested" / "table.md").read_text()
    assert "\nOrder-aware is first in " in page  # not "among the paper's rows": it has one of them


@pytest.mark.usefixtures("no_figures")
def test_the_table_of_unseen_classes_scores_all_parts_and_resumes(features, tmp_path, monkeypatch):
    table = read_table("unseen")
    kept = [row for row in table.rows if row.name in ("order-aware", "predicted-class", "features")]
    monkeypatch.setattr(spec, "read_table", lambda name: replace(table, rows=tuple(kept)))
    made = command(features, tmp_path, "--seeds", "1", table="unseen", epochs=1)
    assert run(made) == 0
    written = (tmp_path / "unseen" / "results.json").read_text()
    columns = json.loads(written)["columns"]
    assert [column["source"] for column in columns] == [
        "clouds-fixed-halves",
        "clouds-random-halves",
    ]
    cell = json.loads(written)["rows"][0]["cells"][0]
    for name in ("seen in seen", "seen in all", "unseen in all", "look", "distinct_codes"):
        assert cell[name].keys() == {"0"}
    markdown = (tmp_path / "unseen" / "table.md").read_text()
    assert "### clouds, random halves, 8 bits" in markdown
    page = (tmp_path / "unseen" / "report.html").read_text()
    assert page.count('<table class="beside">') == 2
    assert page.count("<summary>Query ") == 2 * 4

    shutil.rmtree(tmp_path / "unseen")
    shutil.rmtree(next((tmp_path / "runs").glob("*/predicted-class/*/*")))
    monkeypatch.setattr("orbithash.experiments.tables.run.train_stages", only_hashers)
    assert run(made) == 0
    assert (tmp_path / "unseen" / "results.json").read_text() == written


def only_hashers(planned, data, **options):
    """Train, and fail for a run that was finished."""
    assert planned.row == "predicted-class"
    return train_stages(planned, data, **options)


@pytest.mark.usefixtures("no_figures")
def test_tables_share_runs_of_the_same_settings(features, tmp_path):
    assert run(command(features, tmp_path, "--seeds", "1")) == 0
    assert run(command(features, tmp_path, "--seeds", "1", table="selection")) == 0
    assert len(list(tmp_path.rglob("model.safetensors"))) == 6  # two of eight are shared
    assert run(command(features, tmp_path, "--seeds", "1", epochs=3)) == 0
    assert len(list(tmp_path.rglob("model.safetensors"))) == 6 + 4


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_killed_in_the_middle_the_same_command_gives_the_same_table(features, tmp_path):
    arguments = command(features, tmp_path / "killed", epochs=4)
    process = start(
        arguments, output=tmp_path / "output.txt", signal_at=(signal.SIGKILL, AFTER_SOME_RUNS)
    )
    process.join()
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "output.txt").read_text()
    assert list(tmp_path.glob("killed/runs/**/seed-*"))
    assert not (tmp_path / "killed" / "ablation").exists()

    assert run(arguments) == 0
    assert run(command(features, tmp_path / "whole", epochs=4)) == 0
    killed, whole = (
        (tmp_path / name / "ablation" / "results.json").read_text() for name in ("killed", "whole")
    )
    assert killed == whole
    assert not list(tmp_path.rglob("*.unfinished"))


@pytest.mark.usefixtures("no_figures")
def test_several_sources_make_a_wide_table(features, tmp_path):
    several = write_clouds(tmp_path / "voc2007_clouds.npz", many_labels=True)
    assert run(command(features, tmp_path, "--source", str(several), "--seeds", "1")) == 0
    columns = json.loads((tmp_path / "ablation" / "results.json").read_text())["columns"]
    assert [column["source"] for column in columns] == ["clouds", "voc2007_clouds"]
    assert "VOC2007, 8 bits" in (tmp_path / "ablation" / "table.md").read_text()


@pytest.mark.usefixtures("no_figures")
def test_a_run_that_fails_is_named_and_the_rest_is_made(tmp_path, capsys):
    narrow = write_clouds(tmp_path / "narrow.npz", d=6)  # too few for eight bits of some hashers
    assert run([*command(narrow, tmp_path, "--seeds", "1", table="main")]) == 1
    shown = capsys.readouterr()
    assert "itq, 8 bits, seed 0, narrow failed: n_bits=8" in shown.err
    assert "Traceback" not in shown.err
    rows = json.loads((tmp_path / "main" / "results.json").read_text())["rows"]
    filled = {row["name"] for row in rows if row["cells"]}
    assert "order-aware" in filled
    assert "itq" not in filled


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bits", "8,x"], "--bits is '8,x'"),
        (["--bits", "3"], "got 3 bits"),
        (["--source", "nowhere.npz"], "there is no features file"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_wrong_arguments_give_one_line_and_exit_code_2(
    features, tmp_path, capsys, arguments, message
):
    assert run(command(features, tmp_path, *arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_wrong_arguments_are_found_before_images_are_described(tmp_path, capsys):
    table = write_table(coloured(tmp_path / "images"), tmp_path / "birds.csv")
    asked = command(table, tmp_path, "--backbone", "small-cnn", "--frozen", "--bits", "3")
    assert run(asked) == 2
    assert "got 3 bits" in capsys.readouterr().err
    assert not (tmp_path / "features").exists()


@pytest.mark.usefixtures("no_figures")
def test_images_train_the_whole_network_unless_it_is_frozen(tmp_path, capsys):
    table = write_table(coloured(tmp_path / "images"), tmp_path / "birds.csv")
    asked = command(table, tmp_path, "--backbone", "small-cnn", "--seeds", "1", epochs=1)
    assert run(asked) == 0
    made = tmp_path / "ablation-fine-tuned"
    assert "Losses trained the whole network" in (made / "table.md").read_text()
    assert "data:image/jpeg" in (made / "report.html").read_text()
    for head in (["--frozen"], ["--tune", "head"]):
        assert run([*asked, *head]) == 2
        assert "needs its weights" in capsys.readouterr().err


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from orbithash.cli import run; code = run(['reproduce', '--help']); "
        "sys.exit(code or bool({'torch', 'sklearn', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
