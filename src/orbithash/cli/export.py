"""`orbithash export`: the encoder for other runtimes."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.files import check_new_file


def export_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    out: Annotated[Path, typer.Option(help="File for the model, an .onnx.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier file.")] = False,
) -> None:
    """Write the encoder as ONNX: images or features in, embeddings out; a bit is set above 0.5.

    Example: orbithash export runs/photos --out photos.onnx
    """
    check_new_file(out, suffix=".onnx", force=force)
    from orbithash import load  # --help must not wait for torch
    from orbithash.encoders.runtime import export_encoder

    encoder = load(run)
    export_encoder(encoder, out)
    Console().print(f"An encoder of {encoder.n_bits} bits as ONNX:", style="bold")
    print(f"  {out}")
