"""`orbithash index`: codes of images or features, stored to be searched."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orbithash.cli.options import Device, PrefixBits
from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.retrieval import IndexReport

SHOWN = 5  # paths that are printed of each kind; the rest is counted


def index_command(
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
        bool, typer.Option("--prune", help="Remove items that SOURCE no longer has.")
    ] = False,
    remove: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Remove an item; may be given several times."),
    ] = None,
    bits: PrefixBits = None,
    device: Device = "cpu",
) -> None:
    """Encode and store every image; again on the same index, only new and changed ones.

    Items that SOURCE no longer has are reported, and removed with --prune. An interrupted command
    continues when it is repeated. With --remove alone, RUN and SOURCE may be left out.
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
        update(console, out, run, source, prune=prune, bits=bits, device=device)
    if remove:
        remove_items(console, out, remove)


def update(
    console: Console,
    out: str,
    run: Path,
    source: str,
    *,
    prune: bool,
    bits: int | None,
    device: str,
) -> None:
    from orbithash import load, open_index  # --help must not wait for torch
    from orbithash.data import open_unlabelled
    from orbithash.data.sources import absolute_source
    from orbithash.encoders.encoder import check_encodes
    from orbithash.encoders.progress import progress_bar

    data = open_unlabelled(source)
    encoder = load(run, device=device)
    if bits is not None:
        encoder = encoder.prefix(bits)
    check_encodes(encoder, data)  # a wrong source must not leave a new, empty index
    with open_index(out, encoder=encoder) as opened:
        try:
            with progress_bar(console) as show:
                report = opened.add_images(
                    data, name=absolute_source(source), prune=prune, progress=show
                )
        except KeyboardInterrupt:
            console.print("Stopped; repeat the command to continue.")
            raise
        count = len(opened)
    print_report(console, report)
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


def remove_items(console: Console, out: str, ids: list[int]) -> None:
    from orbithash.index import open_index
    from orbithash.index.checks import as_ids

    with open_index(out) as opened:
        removed = opened.remove(as_ids(ids))
        console.print(f"Removed {removed} of {len(ids)} items; {len(opened)} are left.")
