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

SCORES = "scores.json"
PRECISION_RECALL, PRECISION_AT = "precision_recall.svg", "precision_at.svg"
UNREADABLE = "unreadable.txt"


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[str, typer.Argument(help="Images or features with labels.")],
    out: Annotated[Path, typer.Option(help="Folder for the report.")],
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier report.")] = False,
) -> None:
    """Score an encoder: MAP with its bounds, precision@N and the precision-recall curve.

    Every query of the split is searched in the database of the split; without a split, each row is
    a query against all others. Unreadable images are left out and listed in the report.
    """
    console = Console()
    contents = frozenset({SCORES, PRECISION_RECALL, PRECISION_AT, UNREADABLE})
    with output_folder(out, contents=contents, force=force) as folder:
        from orbithash import load  # --help must not wait for torch
        from orbithash.data import ImageFiles, open_source
        from orbithash.encoders import read_record
        from orbithash.encoders.encoding import write_unreadable
        from orbithash.encoders.progress import progress_bar
        from orbithash.encoders.runs.run_folder import trained_queries
        from orbithash.evaluation import encode_split, evaluate_rows
        from orbithash.experiments.report.figure import (
            precision_at_figure,
            precision_recall_figure,
            score_curves,
        )

        method = read_record(run).method
        encoder = load(run, device=device)
        data = open_source(source)
        if isinstance(data, ImageFiles):
            warn_about_trained_queries(run, trained_queries(run, data), len(data.split.query))
        with progress_bar(console) as report:
            encoded = encode_split(encoder, data, progress=report)
        scores = evaluate_rows(encoded, data)
        write_unreadable(encoded.unreadable, folder / UNREADABLE)
        (folder / SCORES).write_text(scores.to_json() + "\n", encoding="utf-8")
        by_radius, by_number = score_curves(method, scores)
        for name, figure, curve in (
            (PRECISION_RECALL, precision_recall_figure, by_radius),
            (PRECISION_AT, precision_at_figure, by_number),
        ):
            (folder / name).write_text(figure([curve], n_bits=scores.n_bits), encoding="utf-8")
    console.print(as_table(method, scores))
    print_unreadable(console, len(encoded.unreadable), out / UNREADABLE)
    console.print("Scores and pictures:", style="bold")
    print(f"  {out}")


def warn_about_trained_queries(run: Path, trained: list[str], n_queries: int) -> None:
    if trained:
        print(
            f"orbithash: {run} was trained on {len(trained)} of the {n_queries} queries, such as "
            f"{trained[0]}: these scores are too good; give the run's own split.csv as SOURCE",
            file=sys.stderr,
        )


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
        table.add_row(f"precision@{n}", f"{precision:.4f}", "")
    without = scores.queries_without_relevant
    table.add_row("queries", f"{scores.queries}", f"{without} without a match" if without else "")
    table.add_row("database", f"{scores.database}", "")
    return table
