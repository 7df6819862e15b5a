"""What is shown while an encoder is learned: epochs of a network, or the steps of a fit."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from orbithash.training import Epoch


@dataclass(frozen=True)
class Shown:
    """What is told to whom watches: an epoch that is over, and a step."""

    epoch: Callable[["Epoch"], None] = lambda epoch: None
    step: Callable[[float, float], None] = lambda epochs, loss: None


@contextmanager
def training_progress(console: Console, method: str, epochs: int) -> Iterator[Shown]:
    """A bar over the epochs with loss, active triplets, bit balance and validation MAP."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.1f}/{task.total} epochs"),
        TimeRemainingColumn(),
    )
    with ProgressWithFigures(*columns, console=console) as bar:
        task = bar.add_task(method, total=epochs)
        best: list[float] = []

        def show(epoch: "Epoch") -> None:
            if epoch.validation_map is not None:
                best.append(epoch.validation_map)
            figures = [f"loss {epoch.loss:.4g}"]
            if epoch.active_share is not None:
                figures.append(f"active {epoch.active_share:.1%}")
            figures.append(f"balance {epoch.bit_balance:.2f}")
            if best:
                figures.append(f"MAP {best[-1]:.3f} (best {max(best):.3f})")
            bar.figures = " · ".join(figures)
            bar.update(task, completed=epoch.number + 1)

        def show_step(epochs: float, loss: float) -> None:
            if not bar.figures or epochs < 1:
                bar.figures = f"loss {loss:.4g}"
            bar.update(task, completed=epochs)

        yield Shown(show, show_step)


@contextmanager
def fitting_progress(console: Console, method: str, epochs: int) -> Iterator[Shown]:
    """A spinner with the last thing a hasher logged; there are no epochs to show."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"Fit {method}", total=1)
        handler = DescribingHandler(lambda text: bar.update(task, description=text))
        logger = logging.getLogger("orbithash")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield Shown()
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
        bar.update(task, completed=1)


class ProgressWithFigures(Progress):
    """A bar with a line beneath it, where figures have room on any terminal."""

    figures = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.figures)


class DescribingHandler(logging.Handler):
    """Passes the text of every record on."""

    def __init__(self, describe: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self.describe = describe

    def emit(self, record: logging.LogRecord) -> None:
        self.describe(record.getMessage())
