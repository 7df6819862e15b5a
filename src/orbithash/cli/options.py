"""What several commands share: the option --device, and a message about unreadable images."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

Device = Annotated[str, typer.Option(help="Where a network runs on images: cpu or cuda.")]


def print_unreadable(console: Console, n_images: int, file: Path) -> None:
    """Say how many images could not be read, and where they are listed."""
    if n_images:
        console.print(f"Left out {n_images} images that cannot be read, listed in:")
        print(f"  {file}")
