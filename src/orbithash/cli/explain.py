"""`orbithash explain`: a picture of what the pairs of one query weigh."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orbithash.cli.options import visible
from orbithash.errors import InputError
from orbithash.files import check_new_file

if TYPE_CHECKING:
    from orbithash.data import ImageSource, LabelledFeatures
    from orbithash.encoders import Encoded
    from orbithash.experiments.explain import WeightedPair

N_WORST = 5  # queries that are proposed
ROUNDING = 1e-9  # of an average precision


def explain_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[str, typer.Argument(help="Images or features with labels and a split.")],
    out: Annotated[Path, typer.Option(help="File for the picture, an .svg.")],
    query: Annotated[
        str | None,
        typer.Option(
            help="The query image: its row number in the source, or its path. Default: the query "
            "of the lowest average precision."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier picture.")] = False,
) -> None:
    """Draw one query's rank list and what each pair weighs, with and without ΔAP.

    Example: orbithash explain runs/photos photos/ --out weights.svg

    A pair is a related and an unrelated image. Its weight is how much the average precision of
    the list would change if the two swapped places. If the query has no errors, other queries are
    proposed: those of the lowest average precision.
    """
    check_new_file(out, suffix=".svg", force=force)
    import numpy as np  # --help must not wait for torch

    from orbithash import load
    from orbithash.data import open_source
    from orbithash.encoders import encode_source, read_record
    from orbithash.encoders.progress import progress_bar
    from orbithash.evaluation import encode_split
    from orbithash.experiments.explain import database_rows, explain_query, with_queries
    from orbithash.experiments.report.examples import find_image, image_folders, thumbnail
    from orbithash.experiments.report.explain_figure import explanation_figure, heaviest
    from orbithash.experiments.report.figure import to_svg
    from orbithash.files import whole_file

    encoder = load(run)
    record = encoder.training.record if encoder.training else read_record(run)
    data = open_source(source)
    console = Console()
    row = None if query is None else find_row(data, query)
    worst: list[tuple[int, float]] = []
    with progress_bar(console) as report:
        if row is None:
            encoded = encode_split(encoder, data, progress=report)
            worst = find_worst(encoded, data)
            row = worst[0][0]
        else:
            rows = np.union1d(database_rows(data, row), [row])
            encoded = encode_source(encoder, data, rows=rows, progress=report)
    explanation = explain_query(encoded, record, data, row)
    if explanation.is_right and not worst:
        with progress_bar(console) as report:
            encoded = with_queries(encoder, data, encoded, report)
        worst = find_worst(encoded, data)
    places = image_folders(source)
    drawn = {row, *(item.row for item in explanation.items)}
    found = {item: thumbnail(find_image(data, item, places)) for item in drawn}
    images = {item: image for item, image in found.items() if image is not None}
    with whole_file(out) as file:
        file.write(to_svg(explanation_figure(explanation, images)).encode())
    if explanation.is_right:
        console.print(
            f"Query {row} is right: all {explanation.n_related} related images are nearer than any "
            "unrelated one."
        )
    else:
        console.print(
            f"Query {row}: average precision {explanation.database_average_precision:.4f}."
        )
        console.print(as_table(heaviest(explanation)[:5]))
    print_worst(console, data, [(other, value) for other, value in worst if other != row])
    console.print("The rank list with all pairs:", style="bold")
    print(f"  {out}")


def find_worst(
    encoded: "Encoded", data: "ImageSource | LabelledFeatures"
) -> list[tuple[int, float]]:
    """Return rows and average precisions of the worst queries."""
    from orbithash.evaluation import evaluate_rows, worst_queries

    scores = evaluate_rows(encoded, data, precision_at=(), query_embeddings=None)
    return worst_queries(scores, encoded, data, N_WORST)


def print_worst(
    console: Console, data: "ImageSource | LabelledFeatures", worst: list[tuple[int, float]]
) -> None:
    """Propose queries that have errors."""
    from orbithash.experiments.tables.sources import label_text

    wrong = [(row, value) for row, value in worst if value < 1 - ROUNDING]
    if wrong:
        console.print("Other queries with a low average precision:", style="bold")
    elif worst:
        console.print("No other query has errors.")
    for row, value in wrong:
        print(f"  --query {row}  {value:.4f}  {visible(label_text(data, row))}")


def find_row(data: "ImageSource | LabelledFeatures", query: str) -> int:
    """Return the row that a number or a path names: a path in the source, or that of a file."""
    if data.paths is not None and query in data.paths:
        return data.paths.index(query)
    if query.isdecimal() and int(query) < len(data):
        return int(query)
    file, root = Path(query), getattr(data, "root", None)
    if root is not None and file.is_file():
        for row, path in enumerate(data.paths or ()):
            if path.endswith(file.name) and (root / path).resolve() == file.resolve():
                return row
    paths = " or one of its paths" if data.paths is not None else ""
    raise InputError(f"--query is {query!r}; give a row number from 0 to {len(data) - 1}{paths}")


def as_table(pairs: "list[WeightedPair]") -> Table:
    table = Table(title="The pairs that weigh most", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("related, rank", "unrelated, rank", "ΔAP", "of the loss alone", "weighted"):
        table.add_column(name, justify="right")
    for pair in pairs:
        table.add_row(
            str(pair.positive),
            str(pair.negative),
            f"{pair.swap:.4f}",
            f"{pair.alone:.1%}",
            f"{pair.weighted:.1%}",
        )
    return table
