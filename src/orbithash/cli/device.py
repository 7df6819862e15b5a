"""The option of commands that run a network on images."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="Where a network runs on images: cpu, cuda.")]
