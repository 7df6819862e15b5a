"""The time left of a command with several stages, and the bar that shows it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from orbithash.encoders import Epoch
from orbithash.training.hooks import Hooks

FEATURES = "features"  # the stage in which the backbone's features are computed


@dataclass
class Stage:
    """A part of the work, such as 150 epochs, with a speed that is predicted and then measured."""

    name: str
    total: float
    seconds: float  # predicted, for all of it
    unit: str
    done: float = 0.0
    _begun: float | None = None  # amount of the first report
    _first: tuple[float, float] | None = None  # time and amount of the first progress after it

    def __post_init__(self) -> None:
        self.predicted = self.seconds

    def report(self, done: float, now: float) -> None:
        """Note the amount done; the measured speed replaces the predicted one as it grows.

        The speed is measured from the first progress on: work of an earlier, stopped command does
        not count, and neither does what precedes the first item, such as exporting a network.
        """
        self.done = done
        if self._begun is None:
            self._begun = done
        elif self._first is None and done > self._begun:
            self._first = (now, done)
        elif self._first is not None and done > self._first[1]:
            started, before = self._first
            measured = (now - started) * self.total / (done - before)
            weight = min(1.0, 20 * (done - before) / self.total)
            self.seconds = weight * measured + (1 - weight) * self.predicted

    def left(self) -> float:
        return self.seconds * max(0.0, 1 - self.done / self.total)


@dataclass
class TimeLeft:
    """The stages of a command, in their order."""

    clock: Callable[[], float] = time.monotonic
    stages: list[Stage] = field(default_factory=list)

    def add(self, name: str, total: float, seconds: float, *, unit: str) -> None:
        self.stages.append(Stage(name, total, seconds, unit))

    def report(self, name: str, done: float, total: float, *, unit: str) -> Stage:
        """Note how much of a stage is done; earlier stages are over, an unknown one is added."""
        names = [stage.name for stage in self.stages]
        if name not in names:
            self.add(name, total, 0.0, unit=unit)
            names.append(name)
        stage = self.stages[names.index(name)]
        for earlier in self.stages[: names.index(name)]:
            earlier.done = earlier.total
        stage.total = total
        stage.report(done, self.clock())
        return stage

    def seconds(self) -> float:
        return sum(stage.left() for stage in self.stages)

    def share_done(self) -> float:
        """Return the share of the whole work that is done, in time."""
        whole = sum(stage.seconds for stage in self.stages)
        return 1 - self.seconds() / whole if whole else 0.0


@contextmanager
def training_bar(console: Console, left: TimeLeft) -> Iterator[Callable[[str, int], Hooks]]:
    """Show one bar for all stages, with the time left; it appears with the first report.

    Yields a function that returns the hooks of a stage, by its name and number of epochs.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TextColumn("{task.fields[left]}"),
    )
    bar = ProgressWithFigures(*columns, console=console)
    task = bar.add_task("", total=1.0, amount="", left="")

    def show(name: str, done: float, total: float, unit: str) -> None:
        bar.start()
        stage = left.report(name, done, total, unit=unit)
        digits = 1 if unit == "epochs" else 0
        bar.update(
            task,
            description=name,
            completed=left.share_done(),
            amount=f"{done:,.{digits}f}/{total:,.0f} {unit}",
            left=f"{clock_time(left.seconds())} left" if stage.seconds else "",
        )

    def stage_hooks(name: str, epochs: int) -> Hooks:
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
            show(name, epoch.number + 1, epochs, "epochs")

        def show_step(done: float, loss: float) -> None:
            if not bar.figures or done < 1:
                bar.figures = f"loss {loss:.4g}"
            show(name, done, epochs, "epochs")

        return Hooks(
            after_epoch=show_epoch,
            after_step=show_step,
            after_images=lambda done, total: show(FEATURES, done, total, "images"),
        )

    try:
        yield stage_hooks
    finally:
        bar.stop()


def clock_time(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> clock_time(75), clock_time(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def about(seconds: float) -> str:
    """Return a rough duration in words.

    >>> about(8), about(95), about(7000)
    ('10 s', '2 min', '1.9 h')
    """
    if seconds < 55:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{max(1, round(seconds / 60))} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


class ProgressWithFigures(Progress):
    """A bar with a line of figures beneath it, which fits on any terminal."""

    figures = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.figures)
