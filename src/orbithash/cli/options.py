"""What several commands share: options, and a message about unreadable images."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.errors import InputError

Device = Annotated[str, typer.Option(help="Where a network runs on images: cpu or cuda.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Encode on a Ray cluster: its HOST:PORT, auto for the one that runs here, or local "
        "for one of this machine alone.",
    ),
]
PrefixBits = Annotated[
    int | None,
    typer.Option(
        "--bits", help="Only the first bits of a run that was trained with --nested, such as 32."
    ),
]


def code_lengths(lengths: str, option: str) -> tuple[int, ...]:
    """Parse the numbers of an option, separated by commas.

    >>> code_lengths("16,32", "--bits")
    (16, 32)
    """
    try:
        return tuple(int(number) for number in lengths.split(","))
    except ValueError:
        raise InputError(
            f"{option} is {lengths!r}; give numbers with commas, such as 16,32"
        ) from None


def print_unreadable(console: Console, n_images: int, file: Path) -> None:
    """Say how many images could not be read, and where they are listed."""
    if n_images:
        console.print(f"Left out {n_images} images that cannot be read, listed in:")
        print(f"  {file}")
