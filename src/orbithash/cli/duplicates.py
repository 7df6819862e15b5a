"""`orbithash duplicates`: groups of near-duplicates, as a table, JSON or a contact sheet."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orbithash.cli.options import Device, cell_text
from orbithash.cli.search import write_contact_sheet
from orbithash.errors import InputError
from orbithash.files import check_new_file

if TYPE_CHECKING:
    from orbithash.index import DuplicateGroup, DuplicateGroups, SearchEngine

SHOWN = 20  # groups in the table and in the picture; JSON has all
SHOWN_ITEMS = 10  # of a group in the table


def duplicates_command(
    index: Annotated[
        str,
        typer.Argument(
            metavar="INDEX",
            help="Folder that `index` wrote, or milvus:http://HOST:19530/NAME; with --encoder, "
            "a source: images (folder, .csv, .parquet, NAME:FOLDER) or features (.npz).",
        ),
    ],
    radius: Annotated[
        int, typer.Option(min=0, help="Bits in which two near-duplicates differ at most.")
    ] = 3,
    across: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Only groups with items of both: sources that were indexed, or folders.",
        ),
    ] = None,
    encoder: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Encode a source by the run that `train` wrote."),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Only groups with rows of two splits of the source, such as train query.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each group.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help=f"Write a contact sheet of the first {SHOWN}, a .png.")
    ] = None,
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier picture.")] = False,
) -> None:
    """Find groups of near-duplicates: images whose codes differ in few bits, the largest first.

    Example: orbithash duplicates photos.orbit --radius 3

    Example: orbithash duplicates SOURCE --encoder RUN --between train query --radius 0

    Each image of a group is within the radius of another one of it. The distance that is printed
    is to the first of the group. The second example finds images that are both in training and
    among the queries.
    """
    if encoder is None and between is not None:
        raise InputError("--between compares splits of a source; give SOURCE and --encoder RUN")
    if encoder is not None and across is not None:
        raise InputError("--across compares sources of an index; for a source, give --between")
    if picture is not None:
        check_new_file(picture, suffix=".png", force=force, option="--picture")
    console = Console()
    if encoder is None:
        from orbithash import open_index  # --help must not wait for torch

        with open_index(index) as opened:
            show(console, opened, opened.duplicates(radius, across=across), as_json, picture)
    else:
        engine, groups = in_source(index, encoder, between, radius, device)
        show(console, engine, groups, as_json, picture)


def in_source(
    source: str,
    run: Path,
    between: tuple[str, str] | None,
    radius: int,
    device: str,
) -> "tuple[SearchEngine, DuplicateGroups]":
    """Encode a source, or two of its splits, and find the groups of its rows."""
    import numpy as np

    from orbithash import load
    from orbithash.data import open_source, open_unlabelled
    from orbithash.encoders.progress import progress_bar
    from orbithash.index.checks import check_radius
    from orbithash.retrieval import encode_in_memory, split_rows

    loaded = load(run, device=device)
    check_radius(radius, loaded.n_bits)  # and not after minutes of encoding
    if between is None:
        data: Any = open_unlabelled(source)
        rows, splits = np.arange(len(data)), {}
    else:
        data = open_source(source)
        first, second = split_rows(data, between)
        rows, splits = np.union1d(first, second), dict(zip(between, (first, second), strict=True))
    with progress_bar(Console(stderr=True)) as report:  # stdout may be JSON
        engine, unreadable = encode_in_memory(loaded, data, rows, splits=splits, progress=report)
    if unreadable:
        print(f"Left out {len(unreadable)} images that cannot be read.", file=sys.stderr)
    groups = engine.duplicates(radius)
    if between is None:
        return engine, groups
    shared = len(rows) - len(np.setxor1d(first, second))
    if shared:
        print(
            f"{shared} rows are in {between[0]} and in {between[1]} by the split itself.",
            file=sys.stderr,
        )
    return engine, groups.across(first, second)


def show(
    console: Console,
    engine: Any,
    groups: "DuplicateGroups",
    as_json: bool,
    picture: Path | None,
) -> None:
    if as_json:
        for group in groups:
            items = list(group_items(engine, group))
            print(json.dumps({"size": len(group), "spread": group.spread, "items": items}))
    else:
        print_groups(console, engine, groups)
    if picture is not None:
        write_picture(engine, groups[:SHOWN], picture)
        if not as_json:
            console.print("Contact sheet:", style="bold")
            print(f"  {picture}")


def group_items(
    engine: Any, group: "DuplicateGroup", limit: int | None = None
) -> Iterator[dict[str, Any]]:
    from orbithash.retrieval.query import still_stored

    ids = group.ids[:limit].tolist()
    stored = still_stored(engine, ids)  # without items that were removed meanwhile
    for i, distance in zip(ids, group.distances[:limit].tolist(), strict=True):
        if i in stored:
            metadata = stored[i].metadata
            item = {"id": i, "distance": distance, "path": metadata.path, "labels": metadata.labels}
            split = metadata.fields.get("split")
            yield item | ({} if split is None else {"split": split})


def print_groups(console: Console, engine: Any, groups: "DuplicateGroups") -> None:
    """Print a summary, and the first groups as a table."""
    if not len(groups):
        console.print(f"No such group within radius {groups.radius}.")
        return
    shown = [list(group_items(engine, group, SHOWN_ITEMS)) for group in groups[:SHOWN]]
    splits = ("split",) if any("split" in item for items in shown for item in items) else ()
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("group", "distance", "id", *splits):
        table.add_column(heading, justify="right")
    table.add_column("path", overflow="fold")
    table.add_column("labels", overflow="fold")
    for number, (group, items) in enumerate(zip(groups[:SHOWN], shown, strict=True), start=1):
        table.add_section()
        for row, item in enumerate(items):
            cells = [str(number) if row == 0 else "", str(item["distance"]), str(item["id"])]
            cells += [cell_text(item[name]) for name in splits]
            table.add_row(*cells, cell_text(item["path"]), cell_text(", ".join(item["labels"])))
        if len(group) > SHOWN_ITEMS:
            table.add_row(*[""] * (3 + len(splits)), f"… and {len(group) - SHOWN_ITEMS} more", "")
    console.print(table)
    held = "1 group holds" if len(groups) == 1 else f"{len(groups)} groups hold"
    console.print(f"{held} {len(groups.ids)} of {len(engine)} items, within {groups.radius} bits.")
    if len(groups) > SHOWN:
        console.print(f"Shown are the {SHOWN} largest; --json prints all.")


def write_picture(engine: Any, groups: "list[DuplicateGroup]", file: Path) -> None:
    """Draw each group as a row: its first image, then the others."""
    from orbithash.cli.search import MAX_RESULTS
    from orbithash.retrieval import Hit

    sheet = []
    for group in groups:
        first, *others = group_items(engine, group, MAX_RESULTS + 1)
        hits = [
            Hit(**item | {"rank": rank, "hamming": item["distance"]})
            for rank, item in enumerate(others, start=2)
        ]
        sheet.append((first["path"], hits))
    write_contact_sheet(sheet, file, caption="group {}")
