"""`orbithash explain`: a picture of what the pairs of one query weigh."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orbithash.errors import InputError
from orbithash.files import check_new_file

if TYPE_CHECKING:
    from orbithash.data import ImageSource, LabelledFeatures
    from orbithash.experiments.explain import WeightedPair


def explain_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[str, typer.Argument(help="Images or features with labels and a split.")],
    query: Annotated[
        str, typer.Option(help="The query image: its row number in the source, or its path.")
    ],
    out: Annotated[Path, typer.Option(help="File for the picture, an .svg.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier picture.")] = False,
) -> None:
    """Draw one query's rank list and what each pair weighs, with and without ΔAP.

    A pair is a related and an unrelated image. Its weight is how much the average precision of
    the list would change if the two swapped places.
    """
    check_new_file(out, suffix=".svg", force=force)
    from orbithash import load  # --help must not wait for torch
    from orbithash.data import open_source
    from orbithash.encoders import read_record
    from orbithash.encoders.progress import progress_bar
    from orbithash.experiments.explain import explain_query
    from orbithash.experiments.report.examples import find_image, thumbnail
    from orbithash.experiments.report.explain_figure import explanation_figure, heaviest
    from orbithash.experiments.report.figure import to_svg
    from orbithash.files import whole_file

    record, encoder = read_record(run), load(run)
    data = open_source(source)
    row = find_row(data, query)
    console = Console()
    with progress_bar(console) as report:
        explanation = explain_query(encoder, record, data, row, progress=report)
    places = (Path(source).parent, Path())
    found = {item.row: thumbnail(find_image(data, item.row, places)) for item in explanation.items}
    images = {item: image for item, image in found.items() if image is not None}
    with whole_file(out) as file:
        file.write(to_svg(explanation_figure(explanation, images)).encode())
    console.print(as_table(heaviest(explanation)[:5]))
    console.print("The rank list with all pairs:", style="bold")
    print(f"  {out}")


def find_row(data: "ImageSource | LabelledFeatures", query: str) -> int:
    """The row that a number or a path names."""
    if data.paths is not None and query in data.paths:
        return data.paths.index(query)
    if query.isdecimal() and int(query) < len(data):
        return int(query)
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
