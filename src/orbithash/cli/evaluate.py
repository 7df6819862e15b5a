"""`orbithash evaluate`: how good an encoder's codes are."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orbithash.cli.device import Device
from orbithash.cli.features import progress_bar
from orbithash.cli.sources import holds_features, image_files
from orbithash.files import whole_folder

if TYPE_CHECKING:
    from orbithash.data import ImageFiles, LabelledFeatures
    from orbithash.evaluation import Scores

SCORES = "scores.json"
PRECISION_RECALL, PRECISION_AT = "precision_recall.svg", "precision_at.svg"
UNREADABLE = "unreadable.txt"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[str, typer.Argument(help="Images or features with labels and a split.")],
    out: Annotated[Path, typer.Option(help="Folder for the report.")],
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier report.")] = False,
) -> None:
    """Score an encoder: MAP with its bounds, precision@N and the precision-recall curve.

    Every query of the split is searched in the database of the split. Images that cannot be read
    are left out and listed in the report.
    """
    console = Console()
    contents = frozenset({SCORES, PRECISION_RECALL, PRECISION_AT, UNREADABLE})
    with whole_folder(out, contents=contents, force=force) as folder:
        from orbithash.data import read_features  # --help must not wait for torch
        from orbithash.encoders import load, read_record
        from orbithash.encoders.unreadable import write_unreadable
        from orbithash.evaluation import encode_split, evaluate_rows
        from orbithash.experiments.report.figure import (
            precision_at_figure,
            precision_recall_figure,
            score_curves,
        )

        record = read_record(run)
        encoder = load(run, device=device)
        data = read_features(Path(source)) if holds_features(source) else image_files(source)
        warn_of_trained_queries(run, data)
        with progress_bar(console) as report:
            encoded = encode_split(encoder, data, progress=report)
        scores = evaluate_rows(encoded, data, n_bits=encoder.n_bits)
        write_unreadable(encoded.unreadable, folder / UNREADABLE)
        (folder / SCORES).write_text(scores.to_json() + "\n", encoding="utf-8")
        by_radius, by_number = score_curves(record.method, scores)
        for name, figure, curve in (
            (PRECISION_RECALL, precision_recall_figure, by_radius),
            (PRECISION_AT, precision_at_figure, by_number),
        ):
            (folder / name).write_text(figure([curve], n_bits=scores.n_bits), encoding="utf-8")
    console.print(as_table(record.method, scores))
    if encoded.unreadable:
        console.print(f"Left out {len(encoded.unreadable)} images that cannot be read, listed in:")
        print(f"  {out / UNREADABLE}")
    console.print("Scores and pictures:", style="bold")
    print(f"  {out}")


def warn_of_trained_queries(run: Path, data: "ImageFiles | LabelledFeatures") -> None:
    """Say so if the scores will be too good: the run has seen the answers."""
    from orbithash.data import ImageFiles
    from orbithash.encoders.runs.split_file import trained_queries

    if isinstance(data, ImageFiles) and (known := trained_queries(run, data)):
        print(
            f"orbithash: {run} was trained on {len(known)} of the {len(data.split.query)} queries, "
            f"as {known[0]}: these scores are too good; give the run's own split.csv as SOURCE",
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
    left_out = scores.queries_without_relevant
    table.add_row("queries", f"{scores.queries}", f"{left_out} without answer" if left_out else "")
    table.add_row("database", f"{scores.database}", "")
    return table
