import json
from dataclasses import replace

import numpy as np
import pytest

import orbithash
from feature_files import write_clouds
from indexed_runs import feature_run
from orbithash.cli import run
from orbithash.codes import pack
from orbithash.evaluation import Scores, evaluate_codes, evaluate_file
from published_evaluations import by_minimum, found_or_left_out, found_or_zero, within_radius

N_BITS, N_QUERIES, N = 20, 60, 400
CUTOFFS = (1, 50, 399)


def signs_and_marks(*, several):
    """Codes with many ties and empty balls, in ±1; every query has relevant items."""
    rng = np.random.default_rng(several)
    marks = np.eye(6, dtype=bool)[rng.integers(0, 6, N)]
    if several:
        marks |= rng.random((N, 6)) < 0.2
    noise = 1.5 * rng.standard_normal((N, N_BITS))
    signs = np.where(marks @ rng.standard_normal((6, N_BITS)) + noise > 0, 1, -1)
    return signs.astype(np.float32), marks.astype(np.float32)


def write_codes(file, signs, marks, *, several=True, **arrays):
    labels = marks.astype(np.uint8) if several else marks.argmax(axis=1)
    rows = {"query": np.arange(N_QUERIES), "database": np.arange(N_QUERIES, len(signs))}
    arrays = {"codes": pack(signs > 0), "n_bits": N_BITS, "labels": labels, **rows, **arrays}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file


def scores_of(folder, *arguments):
    """Run the command and return the scores that it wrote."""
    out = folder / "report"
    assert run(["evaluate", *map(str, arguments), "--out", str(out), "--force"]) == 0
    return Scores.from_json((out / "scores.json").read_text())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("ties", "order"), [("stable", "stable"), ("argsort", None)])
def test_scores_equal_those_of_published_evaluations(tmp_path, several, ties, order):
    signs, marks = signs_and_marks(several=several)
    file = write_codes(tmp_path / "codes.npz", signs, marks, several=several)
    at = [argument for n in CUTOFFS for argument in ("--map-at", n)]
    scores = scores_of(tmp_path, file, "--ties", ties, *at)
    split = signs[:N_QUERIES], signs[N_QUERIES:], marks[:N_QUERIES], marks[N_QUERIES:]
    for n in CUTOFFS:
        literal = {name: name(*split, n, order) for name in (found_or_zero, found_or_left_out)}
        assert scores.map_at_found[n] == pytest.approx(literal[found_or_zero], abs=1e-12)
        found = scores.map_at_found[n] / (1 - scores.nothing_found_at[n])
        assert found == pytest.approx(literal[found_or_left_out], abs=1e-12)
        assert scores.map_at[n] == pytest.approx(by_minimum(*split, n, order), abs=1e-12)
    assert 0 < scores.nothing_found_at[1] < 1
    curves = scores.precision_recall
    within = curves.precision[2], curves.precision_or_zero[2], curves.empty[2]
    assert within == pytest.approx(within_radius(*split, 2), abs=1e-6)
    assert curves.empty[2] > 0


def test_the_order_of_argsort_gives_a_map_between_the_bounds(tmp_path):
    signs, marks = signs_and_marks(several=False)
    scores = evaluate_file(write_codes(tmp_path / "codes.npz", signs, marks))
    split = signs[:N_QUERIES], signs[N_QUERIES:], marks[:N_QUERIES], marks[N_QUERIES:]
    lowest, highest = scores.map_bounds
    assert lowest < found_or_zero(*split, None, None) < highest


def test_the_table_shows_every_score(tmp_path, capsys):
    signs, marks = signs_and_marks(several=False)
    file = write_codes(tmp_path / "codes.npz", signs, marks)
    assert run(["evaluate", str(file), "--map-at", "50", "--map-at", "100"]) == 0
    shown = capsys.readouterr().out
    scores = evaluate_file(file, map_at=(50, 100))
    curves = scores.precision_recall
    for name, value in (
        ("MAP ", scores.map),
        ("MAP@50 ", scores.map_at[50]),
        ("", scores.map_at_found[50]),
        ("MAP@100 ", scores.map_at[100]),
        ("MAP@R ", scores.map_at_r),
        ("NDCG ", scores.ndcg),
        ("recall@1 ", scores.recall_at[1]),
        ("recall@10 ", scores.recall_at[10]),
        ("precision@10 ", scores.precision_at[10]),
        ("precision, radius 2 ", curves.precision[2]),
        ("", curves.precision_or_zero[2]),
    ):
        assert any(name in line and f"{value:.4f}" in line for line in shown.splitlines()), name
    assert f"{curves.empty[2]:.1%}" in shown
    assert list(tmp_path.iterdir()) == [file]


def test_without_row_numbers_each_row_is_a_query_against_all_others(tmp_path):
    signs, marks = signs_and_marks(several=False)
    file = write_codes(tmp_path / "codes.npz", signs, marks, query=None, database=None)
    codes = pack(signs > 0)
    expected = evaluate_codes(
        codes,
        codes,
        marks.astype(int),
        marks.astype(int),
        n_bits=N_BITS,
        map_at=(7,),
        recall_at=(1, 10),
        map_at_r=True,
        leave_one_out=True,
    )
    assert scores_of(tmp_path, file, "--map-at", 7) == expected
    assert (expected.queries, expected.database) == (N, N - 1)


def test_the_codes_of_a_run_have_the_scores_of_the_run(tmp_path):
    features, encoder = write_clouds(tmp_path / "clouds.npz"), tmp_path / "run"
    assert (
        run(["train", str(features), "--bits", "8", "--method", "lsh", "--out", str(encoder)]) == 0
    )
    codes = tmp_path / "codes.npz"
    assert run(["encode", str(encoder), str(features), "--out", str(codes)]) == 0
    options = ("--map-at", 10, "--ties", "stable")
    scores = scores_of(tmp_path, encoder, features, *options)
    # The file has neither embeddings nor features.
    missing = dict.fromkeys(("map_asymmetric", "look", "look_asymmetric"))
    assert None not in [getattr(scores, name) for name in missing]
    assert scores_of(tmp_path, codes, *options) == replace(scores, **missing)
    assert (scores.queries, scores.database) == (25, 75)


@pytest.mark.parametrize(
    ("form", "labels"),
    [("packed", "numbers"), ("bits", "marks"), ("signs", "text"), ("packed", "names")],
)
def test_arrays_of_queries_and_database_have_the_scores_of_one_file(tmp_path, form, labels):
    several = labels in ("marks", "names")
    signs, marks = signs_and_marks(several=several)
    marks[-1] = 0  # an item without labels
    if not several:
        marks[-1, 0] = 1
    expected = evaluate_file(
        write_codes(tmp_path / "codes.npz", signs, marks, several=several), map_at=(50,)
    )
    saved = {"packed": pack(signs > 0), "bits": signs > 0, "signs": signs}[form]
    files = [tmp_path / name for name in ("query", "database", "query-labels", "database-labels")]
    for rows, name in ((slice(N_QUERIES), "query"), (slice(N_QUERIES, None), "database")):
        np.save(tmp_path / f"{name}.npy", saved[rows])
        save_labels(tmp_path / f"{name}-labels", marks[rows], labels)
    suffix = ".npy" if labels in ("numbers", "marks") else ".txt"
    query, database = (file.with_suffix(".npy") for file in files[:2])
    of_labels = [file.with_suffix(suffix) for file in files[2:]]
    options = ["--bits", N_BITS, "--query-labels", of_labels[0], "--database-labels", of_labels[1]]
    scores = scores_of(tmp_path, query, database, *options, "--map-at", 50)
    assert "on query.npy</h1>" in (tmp_path / "report/report.html").read_text()
    assert json.loads(scores.to_json()) | {"map_by_class": {}} == json.loads(expected.to_json()) | {
        "map_by_class": {}
    }
    assert sorted(scores.map_by_class.values()) == sorted(expected.map_by_class.values())


def save_labels(place, marks, labels):
    if labels == "marks":
        np.save(place.with_suffix(".npy"), np.where(marks == 0, -1, marks))  # as HashNet saves them
    elif labels == "numbers":
        np.save(place.with_suffix(".npy"), marks.argmax(axis=1)[:, None].astype(float))
    elif labels == "text":
        np.savetxt(place.with_suffix(".txt"), marks.argmax(axis=1), fmt="%d")
    else:
        lines = [";".join(f"class {n}" for n in np.flatnonzero(row)) or ";" for row in marks]
        place.with_suffix(".txt").write_text("\n".join(lines) + "\n")


def test_the_report_of_codes_shows_their_classes_and_worst_queries(tmp_path):
    signs, marks = signs_and_marks(several=False)
    names = np.array(["ant", "bee", "cat", "dog", "emu", "fox"])
    paths = np.array([f"photos/{row}.jpg" for row in range(N)])
    file = write_codes(
        tmp_path / "codes.npz", signs, marks, several=False, classes=names, paths=paths
    )
    scores = scores_of(tmp_path, file, "--map-at", 50)
    page = (tmp_path / "report/report.html").read_text()
    assert f"MAP {scores.map:.4f} on codes.npz" in page
    assert set(scores.map_by_class) == set(names)
    assert "photos/" in page
    assert f"{scores.map_at_found[50]:.4f}" in page
    assert "explain" not in page
    for picture in ("precision_recall.svg", "precision_at.svg"):
        assert "<svg" in (tmp_path / "report" / picture).read_text()


def test_a_run_is_scored_without_a_report(tmp_path, capsys):
    features = write_clouds(tmp_path / "clouds.npz")
    assert (
        run(["train", str(features), "--bits", "8", "--method", "lsh", "--out", f"{tmp_path}/r"])
        == 0
    )
    before = sorted(tmp_path.iterdir())
    assert run(["evaluate", str(tmp_path / "r"), str(features)]) == 0
    assert "recall@10" in capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == before


def test_scores_are_printed_as_json(tmp_path, capsys):
    features = write_clouds(tmp_path / "clouds.npz")
    orbithash.train(features, 8, method="lsh", out=tmp_path / "run")
    assert run(["evaluate", str(tmp_path / "run"), str(features), "--json"]) == 0
    scores = Scores.from_json(capsys.readouterr().out)
    assert scores == orbithash.evaluate(orbithash.load(tmp_path / "run"), features)


SIGNS, MARKS = signs_and_marks(several=False)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"codes": None}, "no array 'codes', only"),
        ({"n_bits": None}, "no array 'n_bits', only"),
        ({"labels": None}, "no array 'labels', only"),
        ({"labels": np.zeros(7, int)}, "got 7 labels for 400 codes"),
        ({"labels": np.full(N, np.nan)}, "labels contain NaN"),
        ({"labels": np.full(N, 0.5)}, "number the classes with integers"),
        ({"labels": np.array(["cat"] * N)}, "pass integers"),
        ({"labels": np.full((N, 2), 3)}, "not all 0 or 1"),
        ({"labels": np.array([{}] * N)}, "without objects"),
        ({"n_bits": 40}, "does not fit 40 bits"),
        ({"n_bits": 2}, "codes have 4 to 1024"),
        ({"n_bits": np.array([20, 20])}, "one whole number"),
        ({"n_bits": 20.5}, "one whole number"),
        ({"codes": pack(SIGNS > 0) | 1}, "last 4 bits are not 0"),
        ({"codes": SIGNS * 0.5}, "not all 0 or 1, nor all -1 or 1"),
        ({"codes": np.zeros((N, 3), np.int64)}, "does not fit 20 bits"),
        ({"codes": np.zeros((0, 3), np.uint8), "labels": np.zeros(0, int)}, "have no rows"),
        ({"ids": np.arange(3)}, "ids of shape"),
        ({"paths": np.array(["a.jpg"])}, "got 1 paths for 400"),
        ({"classes": np.array(["a"])}, "but 1 are named"),
        ({"query": np.empty(0, int)}, "query has no row numbers"),
        ({"database": np.empty(0, int)}, "database has no row numbers"),
        ({"query": None}, "database alone"),
        ({"query": np.array([N])}, "number them from 0 to 399"),
        ({"query": np.array([3, 3])}, "twice"),
        ({"query": np.array([0.5])}, "list of row numbers"),
    ],
)
def test_a_wrong_file_of_codes_is_one_line_and_exit_code_2(changed, complaint, tmp_path, capsys):
    file = write_codes(tmp_path / "codes.npz", SIGNS, MARKS, several=False, **changed)
    assert_refused(["evaluate", str(file)], complaint, capsys)


def assert_refused(arguments, complaint, capsys):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert complaint in captured.err


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("codes.npz --map-at 0", "--map-at"),
        ("codes.npz --ties best", "choose one of expected"),
        ("codes.npz digits", "give it alone"),
        ("codes.npz --bits 20", "--bits is for codes in two .npy files"),
        ("missing.npz", "there is no codes file"),
        ("broken.npz", "cannot read"),
        ("single.npz", "one array without a name"),
        ("run", "got run alone"),
        ("q.npy", "needs DATABASE and --bits and --query-labels and --database-labels"),
        ("q.npy d.npy --bits 20 --query-labels ql.npy", "needs --database-labels"),
        ("q.npy d.npy --bits 32 ALL", "q.npy: query codes are uint8 of shape (2, 3)"),
        ("q.npy missing.npy --bits 20 ALL", "there is no file of codes missing.npy"),
        ("q.npy codes.npz --bits 20 ALL", "codes.npz has several arrays"),
        (
            "q.npy d.npy --bits 20 --query-labels ql.npy --database-labels names.txt",
            "two .npy files or two texts",
        ),
        (
            "q.npy d.npy --bits 20 --query-labels ql.npy --database-labels ql.npy",
            "got 2 labels for 3",
        ),
        (
            "q.npy d.npy --bits 20 --query-labels gap.txt --database-labels names.txt",
            "line 2 of gap",
        ),
        (
            "q.npy d.npy --bits 20 --query-labels names.txt --database-labels names.txt",
            "got 3 lines",
        ),
        ("q.npy d.npy --bits 20 --query-labels ragged.txt --database-labels ragged.txt", "with ; "),
        (
            "q.npy d.npy --bits 20 --query-labels none.txt --database-labels names.txt",
            "shares a label",
        ),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(
    command, complaint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_codes(tmp_path / "codes.npz", SIGNS, MARKS, several=False)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    feature_run(tmp_path / "run")
    np.save("q.npy", np.zeros((2, 3), np.uint8))
    np.save("d.npy", np.zeros((3, 3), np.uint8))
    np.save("ql.npy", np.array([0, 1]))
    np.save("dl.npy", np.array([0, 1, 1]))
    for name, lines in {
        "names.txt": ["cat", "dog", "cat"],
        "gap.txt": ["cat", "", "dog"],
        "ragged.txt": ["3", "3 5"],
        "none.txt": [";", ";"],
    }.items():
        (tmp_path / name).write_text("\n".join(lines))
    command = command.replace("ALL", "--query-labels ql.npy --database-labels dl.npy")
    assert_refused(["evaluate", *command.split()], complaint, capsys)
