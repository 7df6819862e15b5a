"""`orbithash encode`: codes alone, in one file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.cli.output import check_new_file
from orbithash.cli.train import features_file


def encode(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[
        str, typer.Argument(help="Features, an .npz; labels and a split are not needed.")
    ],
    out: Annotated[Path, typer.Option(help="File for the codes, an .npz.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier file.")] = False,
) -> None:
    """Encode every row: ids (row numbers), codes, n_bits, and labels and paths where known."""
    check_new_file(out, suffix=".npz", force=force)
    from orbithash.data import read_vectors  # --help must not wait for torch
    from orbithash.encoders import load
    from orbithash.encoders.code_file import write_codes

    encoder = load(run)
    vectors = read_vectors(features_file(source))
    codes = encoder.encode(vectors.features)
    write_codes(out, codes, encoder.n_bits, vectors)
    Console().print(f"{len(codes)} codes of {encoder.n_bits} bits:", style="bold")
    print(f"  {out}")
