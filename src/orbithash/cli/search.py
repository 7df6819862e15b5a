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
    from orbithash.retrieval import Hit


def search_command(
    index: Annotated[
        str, typer.Argument(help="Folder that `index` wrote, or milvus:http://HOST:19530/NAME.")
    ],
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGE…", help="Images to search for (features: .npz)."),
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

    Prints rank, Hamming distance, id, path and labels of each.
    """
    if not images and not like:
        raise InputError("give an image to search for, or --like ID")
    if picture is not None:
        check_new_file(picture, suffix=".png", force=force)
    from orbithash import open_index  # --help must not wait for torch
    from orbithash.index import Where

    console = Console()
    with open_index(index, engine=engine) as opened:
        where = Where(labels=tuple(label)) if label else None
        found = opened.query_many(images or (), ids=like or (), k=k, radius=radius, where=where)
        stats = opened.stats() if engine != "exact" else None
    results = [(name, result.hits) for name, result in found]
    if as_json:
        values = [{"query": name, "hits": [asdict(hit) for hit in hits]} for name, hits in results]
        print(json.dumps(values, indent=2, ensure_ascii=False))
    else:
        for name, hits in results:
            console.print(as_table(name, hits))
    # Measured when an approximate engine has built its structure; a filter needs none.
    if stats is not None and stats.recall is not None:
        Console(stderr=True).print(
            f"{engine} is approximate: recall@{stats.recall_at} on its own codes is "
            f"{stats.recall:.3f}."
        )
    if picture is not None:
        from orbithash.cli.contact_sheet import write_contact_sheet

        write_contact_sheet(results, picture)
        if not as_json:
            console.print("Contact sheet:", style="bold")
            print(f"  {picture}")


def as_table(query: str, hits: "tuple[Hit, ...]") -> Table:
    table = Table(title=escape(query), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("rank", "distance", "id"):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="fold")
    table.add_column("labels", overflow="fold")
    for hit in hits:
        labels = escape(", ".join(hit.labels))
        table.add_row(str(hit.rank), str(hit.distance), str(hit.id), escape(hit.path), labels)
    return table
