"""`orbithash join`: a run on features and its backbone as one encoder of images."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def join_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run on features.")],
    backbone: Annotated[
        str, typer.Option(help="Network that extracted the features; see: orbithash list.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the run that encodes images.")],
    weights: Annotated[
        Path | None,
        typer.Option(help="The network's weights, a safetensors file, if none are installed."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run.")] = False,
) -> None:
    """Join a run on features to the network that extracted them, to index and search images.

    Example: orbithash join runs/head --backbone efficientnet-lite0 --out runs/photos
    """
    from orbithash import load  # --help must not wait for torch

    encoder = load(run, backbone=backbone, weights=weights)
    encoder.save(out, force=force)
    Console().print(f"An encoder of images, {encoder.n_bits} bits:", style="bold")
    print(f"  {out}")
