"""`orbithash search`: the nearest images of an index."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orbithash.errors import InputError
from orbithash.files import check_new_file

if TYPE_CHECKING:
    from orbithash.retrieval import Answer


def search(
    index: Annotated[
        str, typer.Argument(help="Folder that `index` wrote, or milvus:http://HOST:19530/NAME.")
    ],
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGE…", help="Images to search for (features: .npz)."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="How many to find; if not said 10, with --radius all."),
    ] = None,
    like: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Search for what is like this item of the index."),
    ] = None,
    radius: Annotated[
        int | None, typer.Option(min=0, help="Find everything within so many bits.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Find only items with this label; several: with any of them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Write a contact sheet of the results, a .png.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="What searches the codes of a folder; see: orbithash list.")
    ] = "exact",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier picture.")] = False,
) -> None:
    """Find the images of an index that are nearest to the given ones.

    Prints rank, Hamming distance, id, path and labels of each.
    """
    if not images and not like:
        raise InputError("give an image to search for, or --like ID")
    if picture is not None:
        check_new_file(picture, suffix=".png", force=force)
    from orbithash.index import Where, open_index
    from orbithash.retrieval import answers  # --help must not wait for torch

    console = Console()
    with open_index(index, engine=engine) as opened:
        found = answers(
            opened,
            images or (),
            like=like or (),
            k=k,
            radius=radius,
            where=Where(labels=tuple(label)) if label else None,
        )
        stats = opened.stats() if engine != "exact" else None
    if as_json:
        print(json.dumps([asdict(answer) for answer in found], indent=2, ensure_ascii=False))
    else:
        for answer in found:
            console.print(as_table(answer))
    # With a label or a radius every code is compared, whatever the engine: nothing was built then.
    if stats is not None and stats.recall is not None:
        Console(stderr=True).print(
            f"{engine} is approximate: recall@{stats.recall_at} on its own codes is "
            f"{stats.recall:.3f}."
        )
    if picture is not None:
        from orbithash.cli.contact_sheet import write_contact_sheet

        write_contact_sheet(found, picture)
        if not as_json:
            console.print("Contact sheet:", style="bold")
            print(f"  {picture}")


def as_table(answer: "Answer") -> Table:
    table = Table(title=escape(answer.query), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("rank", "distance", "id"):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="fold")
    table.add_column("labels", overflow="fold")
    for hit in answer.hits:
        labels = escape(", ".join(hit.labels))
        table.add_row(str(hit.rank), str(hit.distance), str(hit.id), escape(hit.path), labels)
    return table
