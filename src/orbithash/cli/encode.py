"""`orbithash encode`: codes alone, in one file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.cli.device import Device
from orbithash.cli.features import progress_bar
from orbithash.cli.sources import holds_features, images_to_encode
from orbithash.files import check_new_file


def encode(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[
        str,
        typer.Argument(
            help="Images (any folder, .csv, .parquet, NAME:FOLDER), or features (.npz); "
            "no labels needed."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File for the codes, an .npz.")],
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier file.")] = False,
) -> None:
    """Encode every row: ids (row numbers), codes, n_bits, and labels and paths where known.

    Images that cannot be read are left out and listed in a text file beside the codes.
    """
    check_new_file(out, suffix=".npz", force=force)
    from orbithash.data import read_vectors  # --help must not wait for torch
    from orbithash.encoders import encode_source, load
    from orbithash.encoders.encoding import write_codes
    from orbithash.encoders.unreadable import unreadable_list, write_unreadable

    encoder = load(run, device=device)
    console = Console()
    data = read_vectors(Path(source)) if holds_features(source) else images_to_encode(source)
    with progress_bar(console) as report:
        encoded = encode_source(encoder, data, progress=report)
    write_codes(out, encoded, encoder.n_bits, data)
    write_unreadable(encoded.unreadable, unreadable_list(out))
    if encoded.unreadable:
        console.print(f"Left out {len(encoded.unreadable)} images that cannot be read, listed in:")
        print(f"  {unreadable_list(out)}")
    console.print(f"{len(encoded.codes)} codes of {encoder.n_bits} bits:", style="bold")
    print(f"  {out}")
