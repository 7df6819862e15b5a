"""`orbithash search`: the nearest images of an index, as a table, JSON or a contact sheet."""

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orbithash.cli.options import cell_text, visible
from orbithash.errors import InputError, UnreadableImageError
from orbithash.files import check_new_file, whole_file

if TYPE_CHECKING:
    from PIL import Image

    from orbithash.index import Where
    from orbithash.retrieval import Hit, Result, SearchIndex

# The contact sheet, in pixels.
SIDE = 160  # of an image
CAPTION = 18
MARGIN = 6
PER_LINE = 10  # results side by side, after the query
MAX_RESULTS = 50  # shown for a query
PAPER, INK, MISSING = "white", "black", "lightgrey"


def search_command(
    index: Annotated[
        str, typer.Argument(help="Folder that `index` wrote, or milvus:http://HOST:19530/NAME.")
    ],
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE…",
            help="Images to search for: files, folders, patterns such as '*.jpg' (features: .npz).",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="How many to find: default 10, with --radius all."),
    ] = None,
    like: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Search for images like this item of the index."),
    ] = None,
    radius: Annotated[
        int | None, typer.Option(min=0, help="Find all items within this many bits.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Find only items with this label; several: with any of them."),
    ] = None,
    symmetric: Annotated[
        bool,
        typer.Option(
            "--symmetric", help="Rank images by Hamming distance instead of asymmetric distance."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Write a contact sheet of the results, a .png.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Search engine for an index in a folder; see: orbithash list.")
    ] = "exact",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier picture.")] = False,
) -> None:
    """Find the images of an index that are nearest to the given ones.

    Example: orbithash search photos.orbit query.jpg -k 10

    Prints rank, distance, differing bits, id, path and labels of each. Images are ranked by the
    asymmetric distance of their embedding to the stored bits, items of --like by Hamming distance.
    If some of the given images cannot be read, the others are searched, and the exit code is 1.
    """
    if not images and not like:
        raise InputError("give an image to search for, or --like ID")
    if picture is not None:
        check_new_file(picture, suffix=".png", force=force, option="--picture")
    from orbithash import open_index  # --help must not wait for torch
    from orbithash.data.folder import images_named
    from orbithash.index import Where

    console = Console()
    unreadable: list[UnreadableImageError] = []
    with open_index(index, engine=engine) as opened:
        where = Where(labels=tuple(label)) if label else None
        found = opened.query_many(
            images_named(images or ()),
            ids=like or (),
            k=k,
            radius=radius,
            where=where,
            symmetric=symmetric,
            on_unreadable=unreadable.append,
        )
        reasons = [
            "" if result.hits or as_json else nothing_found(opened, result, radius, where)
            for _, result in found
        ]
        stats = opened.stats() if engine != "exact" else None
    for error in unreadable if found else unreadable[:-1]:
        print(visible(f"orbithash: {error}"), file=sys.stderr)
    if unreadable and not found:
        raise unreadable[-1]
    if as_json:
        values = [
            {"query": name, "ranking": result.ranking, "hits": [asdict(hit) for hit in result.hits]}
            for name, result in found
        ]
        lines = json.dumps(values, indent=2, ensure_ascii=False).split("\n")
        print("\n".join(map(visible, lines)))
    else:
        for (name, result), reason in zip(found, reasons, strict=True):
            if result.hits:
                console.print(as_table(name, result))
            else:
                print(visible(f"{name}: {reason}"))
    # Measured when an approximate engine has built its structure; a filter needs none.
    if stats is not None and stats.recall is not None:
        by_image = any(result.ranking == "asymmetric" for _, result in found)
        recall = stats.recall_asymmetric if by_image else stats.recall
        Console(stderr=True).print(
            f"{engine} is approximate: recall@{stats.recall_at} on its own codes is {recall:.3f}."
        )
    if picture is not None:
        write_contact_sheet([(name, result.hits) for name, result in found], picture)
        if not as_json:
            console.print("Contact sheet:", style="bold")
            print(f"  {picture}")
    if unreadable:
        raise typer.Exit(1)


def nothing_found(
    index: "SearchIndex", result: "Result", radius: int | None, where: "Where | None"
) -> str:
    """Say why a query has no results: how far away the nearest item is."""
    from orbithash.retrieval import nearest_distance

    item = None if result.item is None else result.item.id
    nearest = nearest_distance(index.index, result.code, where, without=item)
    if nearest is None:
        return "nothing found; the index has no other items" + (" with this label" if where else "")
    bits = "1 bit" if nearest == 1 else f"{nearest} bits"
    return f"nothing within {radius} bits; the nearest is {bits} away"


def as_table(query: str, result: "Result") -> Table:
    table = Table(title=cell_text(query), title_justify="left", box=box.SIMPLE_HEAD)
    is_asymmetric = result.ranking == "asymmetric"
    for heading in ("rank", "distance", *(("bits",) if is_asymmetric else ()), "id"):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="fold")
    table.add_column("labels", overflow="fold")
    for hit in result.hits:
        distances = (format_distance(hit), *((str(hit.hamming),) if is_asymmetric else ()))
        labels = cell_text(", ".join(hit.labels))
        table.add_row(str(hit.rank), *distances, str(hit.id), cell_text(hit.path), labels)
    return table


def format_distance(hit: "Hit") -> str:
    """Format a Hamming distance as a whole number, and an asymmetric one with three decimals."""
    return str(hit.distance) if isinstance(hit.distance, int) else f"{hit.distance:.3f}"


def shown_distance(hit: "Hit") -> str:
    """Return the distance with its unit, if it has one."""
    if not isinstance(hit.distance, int):
        return format_distance(hit)
    return "1 bit" if hit.distance == 1 else f"{hit.distance} bits"


def write_contact_sheet(
    results: Sequence[tuple[str, Sequence["Hit"]]], file: Path, *, caption: str = "query"
) -> None:
    """Draw each query with its results; an unreadable image is a grey square.

    `caption` is that of a query; {} stands for its number.
    """
    from PIL import Image

    lines = [
        line
        for number, (query, hits) in enumerate(results, start=1)
        for line in sheet_lines(query, hits, caption.format(number))
    ]
    widest = max(map(len, lines), default=1)
    width, height = SIDE + MARGIN, SIDE + CAPTION + MARGIN  # of a cell
    sheet = Image.new("RGB", (widest * width + MARGIN, len(lines) * height + MARGIN), PAPER)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            if cell is not None:
                draw_cell(sheet, column * width + MARGIN, row * height + MARGIN, *cell)
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    with whole_file(file) as opened:
        opened.write(content.getvalue())


def sheet_lines(
    query: str, hits: Sequence["Hit"], caption: str
) -> list[list[tuple[str, str] | None]]:
    """Return path and caption of each cell; lines after the first have no query cell."""
    cells = [
        (hit.path, " · ".join((str(hit.rank), shown_distance(hit), *hit.labels)))
        for hit in hits[:MAX_RESULTS]
    ]
    starts = range(0, max(len(cells), 1), PER_LINE)
    first = (query, caption)
    return [[None if start else first, *cells[start : start + PER_LINE]] for start in starts]


def draw_cell(sheet: "Image.Image", left: int, top: int, path: str, caption: str) -> None:
    from PIL import ImageDraw

    sheet.paste(thumbnail(path), (left, top))
    draw = ImageDraw.Draw(sheet)
    while draw.textlength(caption) > SIDE:
        caption = caption[:-2].rstrip("…") + "…"
    draw.text((left, top + SIDE + 3), caption, fill=INK)


def thumbnail(path: str) -> "Image.Image":
    from PIL import Image, ImageOps

    from orbithash.data.transforms import read_rgb

    try:
        return ImageOps.pad(read_rgb(path, at_least=SIDE), (SIDE, SIDE), color=PAPER)
    except UnreadableImageError:
        return Image.new("RGB", (SIDE, SIDE), MISSING)
