"""`orbithash evaluate`: how good an encoder's codes are."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orbithash.cli.options import Device, print_unreadable
from orbithash.files import output_folder

if TYPE_CHECKING:
    from orbithash.evaluation import Scores

SCORES, REPORT = "scores.json", "report.html"
PRECISION_RECALL, PRECISION_AT = "precision_recall.svg", "precision_at.svg"
UNREADABLE = "unreadable.txt"
SHOWN = (1, 10, 100, 1000)  # the N of precision@N in the table; the JSON has more


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[str, typer.Argument(help="Images or features with labels.")],
    out: Annotated[Path, typer.Option(help="Folder for the report.")],
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier report.")] = False,
) -> None:
    """Score an encoder, and report its failures: by class, confusions, and the worst queries.

    Every query of the split is searched in the database of the split; without a split, each row is
    a query against all others. Nested codes are scored at each of their lengths. Unreadable images
    are left out and listed in the report.
    """
    console = Console()
    contents = frozenset({SCORES, REPORT, PRECISION_RECALL, PRECISION_AT, UNREADABLE})
    with output_folder(out, contents=contents, force=force) as folder:
        from orbithash import load  # --help must not wait for torch
        from orbithash.data import ImageFiles, open_source
        from orbithash.encoders import read_record
        from orbithash.encoders.encoding import write_unreadable
        from orbithash.encoders.progress import progress_bar
        from orbithash.encoders.runs.run_folder import trained_queries
        from orbithash.evaluation import encode_split, evaluate_rows
        from orbithash.experiments.report.evaluation_report import write_evaluation_report
        from orbithash.experiments.report.figure import (
            precision_at_figure,
            precision_recall_figure,
            score_curves,
        )

        record = read_record(run)
        encoder = load(run, device=device)
        data = open_source(source)
        trained = trained_queries(run, data) if isinstance(data, ImageFiles) else []
        notes = []
        if trained:
            notes.append(trained_warning(run, record.init, trained, len(data.split.query)))
            print(f"orbithash: {notes[0]}", file=sys.stderr)
        with progress_bar(console) as report:
            encoded = encode_split(encoder, data, progress=report)
        scores = evaluate_rows(encoded, data, prefixes=encoder.nested)
        write_unreadable(encoded.unreadable, folder / UNREADABLE)
        (folder / SCORES).write_text(scores.to_json() + "\n", encoding="utf-8")
        by_radius, by_number = score_curves(record.method, scores)
        for name, figure, curve in (
            (PRECISION_RECALL, precision_recall_figure, by_radius),
            (PRECISION_AT, precision_at_figure, by_number),
        ):
            (folder / name).write_text(figure([curve], n_bits=scores.n_bits), encoding="utf-8")
        write_evaluation_report(
            folder / REPORT,
            scores,
            encoded,
            data,
            record,
            run=str(run),
            source=source,
            notes=[*notes, *left_out(scores, len(encoded.unreadable))],
        )
    as_lines = as_table_of_lengths if scores.prefixes else as_table
    console.print(as_lines(record.method, scores))
    print_unreadable(console, len(encoded.unreadable), out / UNREADABLE)
    console.print("Scores and pictures:", style="bold")
    print(f"  {out}")
    console.print("Classes, confusions and the worst queries, in a browser:", style="bold")
    print(f"  open {out / REPORT}")


def trained_warning(run: Path, init: str | None, trained: list[str], n_queries: int) -> str:
    runs = f"{run}, or {init} where it started," if init else f"{run}"
    advice = "score other images" if init else "give the run's own split.csv as SOURCE"
    return (
        f"{runs} was trained on {len(trained)} of the {n_queries} queries, such as {trained[0]}: "
        f"these scores are too good; {advice}"
    )


def left_out(scores: "Scores", n_unreadable: int) -> list[str]:
    """Say what was not scored, in lines for the report."""
    lines = []
    if n_unreadable:
        lines.append(f"{n_unreadable} images cannot be read and were left out: see {UNREADABLE}.")
    if scores.queries_without_relevant:
        lines.append(
            f"{scores.queries_without_relevant} of the {scores.queries} queries share no label "
            "with the database; they are left out of all scores."
        )
    return lines


def as_table(method: str, scores: "Scores") -> Table:
    table = Table(
        title=f"{method}, {scores.n_bits} bits", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("", style="dim")
    lowest, highest = scores.map_bounds
    table.add_row("MAP", f"{scores.map:.4f}", f"ties: {lowest:.4f} … {highest:.4f}")
    table.add_row("NDCG", f"{scores.ndcg:.4f}", "")
    for n, precision in scores.precision_at.items():
        if n in SHOWN:
            table.add_row(f"precision@{n}", f"{precision:.4f}", "")
    without = scores.queries_without_relevant
    table.add_row("queries", f"{scores.queries}", f"{without} without a match" if without else "")
    table.add_row("database", f"{scores.database}", "")
    return table


def as_table_of_lengths(method: str, scores: "Scores") -> Table:
    """The scores of nested codes, with a row for each length."""
    title = f"{method}, nested codes: {scores.queries} queries, {scores.database} in the database"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    shown = [n for n in SHOWN if n in scores.precision_at]
    for name in ("bits", "MAP", "ties", "NDCG", *(f"precision@{n}" for n in shown)):
        table.add_column(name, justify="right", style="dim" if name == "ties" else None)
    for n_bits, of_length in {**scores.prefixes, scores.n_bits: scores}.items():
        lowest, highest = of_length.map_bounds
        precisions = [f"{of_length.precision_at[n]:.4f}" for n in shown]
        ties = f"{lowest:.4f} … {highest:.4f}"
        table.add_row(
            f"{n_bits}", f"{of_length.map:.4f}", ties, f"{of_length.ndcg:.4f}", *precisions
        )
    return table
