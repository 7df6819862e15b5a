"""What several commands share: options, and how they print names and messages."""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

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


# Control characters, which command a terminal, or turn the direction of writing; line separators;
# and bytes of file names that are not UTF-8.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return a name, which may be a stranger's, as it is printed: in one line, without commands.

    >>> print(visible("a\x1b[31m.jpg"))
    a\u001b[31m.jpg
    """
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def cell_text(text: str) -> str:
    """Return a name as a cell of a table shows it."""
    return escape(visible(text))


def print_unreadable(console: Console, n_images: int, file: Path) -> None:
    """Say how many images could not be read, and where they are listed."""
    if n_images:
        console.print(f"Left out {n_images} images that cannot be read, listed in:")
        print(f"  {file}")
