"""Progress bars of training: epochs of a network, or the log of a hasher's fit."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from orbithash.encoders import Epoch
from orbithash.training.hooks import Hooks


@contextmanager
def epoch_bar(console: Console, method: str, epochs: int) -> Iterator[Hooks]:
    """Show a bar over the epochs with loss, active triplets, bit balance and validation MAP."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.1f}/{task.total} epochs"),
        TimeRemainingColumn(),
    )
    with ProgressWithFigures(*columns, console=console) as bar:
        task = bar.add_task(method, total=epochs)
        scores: list[float] = []

        def show_epoch(epoch: Epoch) -> None:
            if epoch.validation_map is not None:
                scores.append(epoch.validation_map)
            figures = [f"loss {epoch.loss:.4g}"]
            if epoch.active_share is not None:
                figures.append(f"active {epoch.active_share:.1%}")
            figures.append(f"balance {epoch.bit_balance:.2f}")
            if scores:
                figures.append(f"MAP {scores[-1]:.3f} (best {max(scores):.3f})")
            bar.figures = " · ".join(figures)
            bar.update(task, completed=epoch.number + 1)

        def show_step(epochs: float, loss: float) -> None:
            if not bar.figures or epochs < 1:
                bar.figures = f"loss {loss:.4g}"
            bar.update(task, completed=epochs)

        yield Hooks(after_epoch=show_epoch, after_step=show_step)


@contextmanager
def fit_spinner(console: Console, method: str) -> Iterator[Hooks]:
    """Show a spinner with the last message that the hasher logged."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"Fit {method}", total=1)
        handler = MessageHandler(lambda text: bar.update(task, description=text))
        logger = logging.getLogger("orbithash")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield Hooks()
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
        bar.update(task, completed=1)


class ProgressWithFigures(Progress):
    """A bar with a line of figures beneath it, which fits on any terminal."""

    figures = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.figures)


class MessageHandler(logging.Handler):
    """Passes the message of every log record to a function."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        self.show(record.getMessage())
