"""`orbithash index`: codes of images or features, stored to be searched."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orbithash.cli.device import Device
from orbithash.cli.features import progress_bar
from orbithash.cli.sources import absolute_source, holds_features, images_to_encode
from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.data import ImageFiles, Vectors
    from orbithash.retrieval import IndexReport

SHOWN = 5  # paths of a kind that are printed; the rest is counted


def index(
    out: Annotated[
        str, typer.Option(help="The index: a folder, or milvus:http://HOST:19530/NAME.")
    ],
    run: Annotated[Path | None, typer.Argument(help="Folder that `train` wrote.")] = None,
    source: Annotated[
        str | None,
        typer.Argument(
            help="Images (any folder, .csv, .parquet, NAME:FOLDER), or features (.npz)."
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what is gone from SOURCE from the index too.")
    ] = False,
    remove: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Remove an item; may be given several times."),
    ] = None,
    device: Device = "cpu",
) -> None:
    """Encode and store every image; again on the same index, only what is new or changed.

    What the index holds and SOURCE no longer has is reported, and removed with --prune. Stopped in
    the middle, the same command goes on where it was. With --remove alone, RUN and SOURCE may be
    left out.
    """
    if run is not None and source is None:
        raise InputError(
            f"got {run} alone; give both RUN and SOURCE, or to remove several items repeat "
            "--remove: --remove 17 --remove 18"
        )
    if source is None and prune:
        raise InputError("--prune removes what is gone from SOURCE; give RUN and SOURCE too")
    if source is None and not remove:
        raise InputError("give RUN and SOURCE, or --remove ID; try: orbithash index --help")
    console = Console()
    if run is not None and source is not None:
        update(console, out, run, source, prune=prune, device=device)
    if remove:
        take_out(console, out, remove)


def update(console: Console, out: str, run: Path, source: str, *, prune: bool, device: str) -> None:
    from orbithash.data import read_vectors  # --help must not wait for torch
    from orbithash.encoders import load
    from orbithash.encoders.runs.run_folder import MODEL
    from orbithash.retrieval import index_of_run, index_source

    if holds_features(source):
        data: ImageFiles | Vectors = read_vectors(Path(source))
    else:
        data = images_to_encode(source)
    encoder = load(run, device=device)
    with index_of_run(out, run / MODEL, n_bits=encoder.n_bits) as opened:
        try:
            with progress_bar(console) as report:
                done = index_source(
                    opened,
                    encoder,
                    data,
                    source=absolute_source(source),
                    prune=prune,
                    progress=report,
                )
        except KeyboardInterrupt:
            console.print("Stopped; the same command goes on from here.")
            raise
        count = len(opened)
    print_report(console, done)
    console.print(f"{count} codes of {encoder.n_bits} bits:", style="bold")
    print(f"  {out}")


def print_report(console: Console, report: "IndexReport") -> None:
    console.print(
        f"{report.new} new, {report.changed} changed, {report.unchanged} as before, "
        f"{len(report.gone)} gone."
    )
    if report.gone:
        console.print(
            "Removed, because they are gone:"
            if report.pruned
            else "Gone from the source, but still in the index (--prune removes them):"
        )
        print_some([f"{path} (id {identifier})" for path, identifier in report.gone.items()])
    if report.unreadable:
        console.print(f"Left out {len(report.unreadable)} images that cannot be read:")
        print_some([f"{path}: {reason}" for path, reason in report.unreadable.items()])


def print_some(lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        print(f"  {line}")
    if len(lines) > SHOWN:
        print(f"  … and {len(lines) - SHOWN} more")


def take_out(console: Console, out: str, ids: list[int]) -> None:
    from orbithash.index import open_index
    from orbithash.index.checks import as_ids

    with open_index(out) as opened:
        removed = opened.remove(as_ids(ids))
        console.print(f"Removed {removed} of {len(ids)} items; {len(opened)} are left.")
