"""What several commands share: the option --device, and a progress bar over images."""

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

Device = Annotated[str, typer.Option(help="Where a network runs on images: cpu or cuda.")]


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[int, int], None]]:
    """Show a bar over images, with their number per second."""
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
                # Images of an earlier, resumed call must not count for the speed of this one.
                bar.reset(task, completed=done, total=total, visible=True)
            bar.update(task, completed=done)

        yield report


class ImagesPerSecond(ProgressColumn):
    """The current speed, once it is known."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


def print_unreadable(console: Console, n_images: int, file: Path) -> None:
    """Say how many images could not be read, and where they are listed."""
    if n_images:
        console.print(f"Left out {n_images} images that cannot be read, listed in:")
        print(f"  {file}")
