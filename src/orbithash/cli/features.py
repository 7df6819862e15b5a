"""`orbithash features`: a backbone's features of images, with labels and split."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.cli.options import Device, print_unreadable
from orbithash.files import check_file_name


def features_command(
    source: Annotated[
        str,
        typer.Argument(
            help="Folder of class folders, table (.csv, .parquet) or a benchmark as NAME:FOLDER."
        ),
    ],
    backbone: Annotated[
        str, typer.Option(help="Network that extracts the features; see: orbithash list.")
    ],
    out: Annotated[Path, typer.Option(help="File for the features, an .npz.")],
    weights: Annotated[
        Path | None,
        typer.Option(help="The network's weights, a safetensors file, if none are installed."),
    ] = None,
    views: Annotated[
        int,
        typer.Option(
            min=0,
            help="Further views of each training image: mirrored, then random crops.",
        ),
    ] = 0,
    device: Device = "cpu",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file or unfinished run of other settings.")
    ] = False,
) -> None:
    """Extract a network's features of every image, and save them with labels and split.

    Example: orbithash features photos/ --backbone efficientnet-lite0 --out photos.npz

    An interrupted command continues when it is repeated. Unreadable images are left out and listed
    in a text file beside the features.
    """
    check_file_name(out, suffix=".npz")
    from orbithash.data.sources import image_files  # --help must not wait for torch
    from orbithash.encoders.encoding import unreadable_list
    from orbithash.encoders.extraction.extract import extract_features
    from orbithash.encoders.progress import progress_bar
    from orbithash.networks import load_photo_backbone
    from orbithash.networks.backbones import check_device

    images = image_files(source)
    check_device(device)
    network = load_photo_backbone(backbone, weights).to(device)
    console = Console()
    try:
        with progress_bar(console) as report:
            done = extract_features(
                images, network, out, n_views=views, force=force, progress=report
            )
    except KeyboardInterrupt:
        console.print("Stopped; repeat the command to continue.")
        raise

    if done.n_computed:
        speed = done.n_computed / done.seconds
        console.print(f"{done.n_computed} images in {done.seconds:.0f} s, {speed:.1f} per second.")
    else:
        console.print("Already done: the file has these features.")
    print_unreadable(console, done.n_unreadable, unreadable_list(out))
    console.print(f"Features of {done.n_images} images:", style="bold")
    print(f"  {out}")
