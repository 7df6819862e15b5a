"""`orbithash features`: a backbone's features of images, with labels and split."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from orbithash.cli.device import Device
from orbithash.errors import InputError
from orbithash.files import check_file_name


def features(
    source: Annotated[
        str,
        typer.Argument(
            help="Folder of class folders, table (.csv, .parquet) or a benchmark as NAME:FOLDER."
        ),
    ],
    backbone: Annotated[
        str, typer.Option(help="Network that describes the images; see: orbithash list.")
    ],
    out: Annotated[Path, typer.Option(help="File for the features, an .npz.")],
    weights: Annotated[
        Path | None,
        typer.Option(help="The network's weights, a safetensors file, if it does not bring them."),
    ] = None,
    views: Annotated[
        int,
        typer.Option(
            min=0,
            help="Further views of each training image: mirrored, then random parts.",
        ),
    ] = 0,
    device: Device = "cpu",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file or unfinished run of other settings.")
    ] = False,
) -> None:
    """Describe every image by a network's features, and save them with labels and split.

    Stopped in the middle, the same command goes on where it was. Images that cannot be read are
    left out and listed in a text file beside the features.
    """
    check_file_name(out, suffix=".npz")
    from orbithash.data import ImageFiles  # --help must not wait for torch
    from orbithash.data.sources import open_source
    from orbithash.encoders.extraction.extract import extract_features
    from orbithash.encoders.unreadable import unreadable_list
    from orbithash.networks import load_photo_backbone
    from orbithash.networks.backbones import check_device

    images = open_source(source)
    if not isinstance(images, ImageFiles):
        raise InputError(f"{source} has no image files; give a folder, a table or NAME:FOLDER")
    check_device(device)
    network = load_photo_backbone(backbone, weights).to(device)
    console = Console()
    try:
        with progress_bar(console) as report:
            done = extract_features(
                images, network, out, n_views=views, force=force, progress=report
            )
    except KeyboardInterrupt:
        console.print("Stopped; the same command goes on from here.")
        raise

    if done.n_computed:
        speed = done.n_computed / done.seconds
        console.print(f"{done.n_computed} images in {done.seconds:.0f} s, {speed:.1f} per second.")
    else:
        console.print("Already done: these features are there.")
    if done.n_unreadable:
        console.print(f"Left out {done.n_unreadable} images that cannot be read, listed in:")
        print(f"  {unreadable_list(out)}")
    console.print(f"Features of {done.n_images} images:", style="bold")
    print(f"  {out}")


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        ImagesPerSecond(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("Images", total=None, visible=False)

        def report(done: int, total: int) -> None:
            if bar.tasks[task].total is None:
                # What an earlier run did must not count as this one's speed.
                bar.reset(task, completed=done, total=total, visible=True)
            bar.update(task, completed=done)

        yield report


class ImagesPerSecond(ProgressColumn):
    """The speed of late, once there is one."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")
