"""`orbithash encode`: codes alone, in one file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.cli.options import Device, PrefixBits, print_unreadable
from orbithash.files import check_new_file


def encode_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[
        str,
        typer.Argument(
            help="Images (any folder, .csv, .parquet, NAME:FOLDER), or features (.npz); "
            "no labels needed."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File for the codes, an .npz.")],
    bits: PrefixBits = None,
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier file.")] = False,
) -> None:
    """Encode every row: ids (row numbers), codes, n_bits, and labels, paths and split where known.

    Example: orbithash encode runs/photos photos/ --out codes.npz

    `orbithash evaluate` scores the file. Unreadable images are left out and listed in a text file
    beside the codes.
    """
    check_new_file(out, suffix=".npz", force=force)
    from orbithash import load  # --help must not wait for torch
    from orbithash.data import open_unlabelled
    from orbithash.encoders import encode_source
    from orbithash.encoders.encoding import unreadable_list, write_codes, write_unreadable
    from orbithash.encoders.progress import progress_bar

    encoder = load(run, device=device)
    if bits is not None:
        encoder = encoder.prefix(bits)
    data = open_unlabelled(source)
    console = Console()
    with progress_bar(console) as report:
        encoded = encode_source(encoder, data, progress=report)
    write_codes(out, encoded, data)
    write_unreadable(encoded.unreadable, unreadable_list(out))
    print_unreadable(console, len(encoded.unreadable), unreadable_list(out))
    console.print(f"{len(encoded.rows)} codes of {encoder.n_bits} bits:", style="bold")
    print(f"  {out}")
