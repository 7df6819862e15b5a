"""What surrounds one training: processes, the run's folder, logs, a progress bar, and signals."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

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

from orbithash.data import ImageFiles, ImageSource
from orbithash.encoders import Encoder, Epoch
from orbithash.encoders.runs.run_folder import (
    CHECKPOINT,
    CONTENTS,
    LOG,
    UNREADABLE,
    epoch_logger,
    write_run,
    write_split,
)
from orbithash.errors import InputError
from orbithash.files import partial_folder, resumable_folder
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.distributed import Processes, joined_processes
from orbithash.training.environment import interruption
from orbithash.training.hooks import Hooks, UnreadableLog, call_all, tensorboard_writer
from orbithash.training.methods import Method


@dataclass(frozen=True)
class TrainingSession:
    """The folder, hooks, checkpoints and processes of one call to `train`."""

    processes: Processes
    hooks: Hooks
    folder: Path | None = None
    checkpoints: Checkpoints | None = None
    unreadable: UnreadableLog | None = None

    def keep_split(self, images: ImageSource) -> None:
        if self.folder and self.processes.first and isinstance(images, ImageFiles):
            write_split(images, self.folder)

    def save(self, encoder: Encoder) -> None:
        """Write the run, if it has a folder."""
        if self.unreadable is not None:
            self.unreadable.gather()
        if self.folder and self.processes.first:
            write_run(encoder, self.folder)


@contextmanager
def training_session(
    out: Path | None,
    method: Method,
    epochs: int,
    hooks: Hooks,
    *,
    resume: bool,
    force: bool,
    checkpoint_every: float,
    tensorboard: str | Path | None,
    progress: bool,
) -> Iterator[TrainingSession]:
    """Join the processes, open the run's folder, show progress, and catch signals."""
    with ExitStack() as stack:
        processes = stack.enter_context(joined_processes())
        folder = checkpoints = unreadable = None
        stopping = hooks.stopping
        writers = []
        if out is not None:
            folder = stack.enter_context(shared_folder(out, processes, resume, force))
            checkpoints = Checkpoints(
                folder / CHECKPOINT, every=checkpoint_every, processes=processes
            )
            unreadable = UnreadableLog(folder / UNREADABLE, processes)
            if processes.first:
                writers.append(epoch_logger(folder / LOG))
            if method.is_loss:
                # A run that can be resumed stops between two steps; any other ends at once.
                signalled = stack.enter_context(interruption())
                stopping = lambda: signalled() or hooks.stopping()  # noqa: E731
        if tensorboard is not None and processes.first:
            writers.append(stack.enter_context(tensorboard_writer(Path(tensorboard))))
        shown = Hooks()
        if progress and processes.first:
            bar = epoch_bar if method.is_loss else fit_spinner
            shown = stack.enter_context(bar(Console(), method.name, epochs))
        yield TrainingSession(
            processes,
            Hooks(
                after_epoch=call_all(*writers, shown.after_epoch, hooks.after_epoch),
                after_step=call_all(shown.after_step, hooks.after_step),
                unreadable=call_all(*filter(None, [unreadable]), hooks.unreadable),
                stopping=stopping,
            ),
            folder,
            checkpoints,
            unreadable,
        )


@contextmanager
def shared_folder(out: Path, processes: Processes, resume: bool, force: bool) -> Iterator[Path]:
    """Yield the run's folder to all processes; the first creates it and renames it at the end."""
    created = resumable_folder(
        out, contents=CONTENTS, checkpoint=CHECKPOINT, resume=resume, force=force
    )
    with ExitStack() as stack:
        message = None
        if processes.first:
            try:
                stack.enter_context(created)
            except InputError as error:
                message = str(error)
        # All raise together: otherwise the others would wait for a process that has ended.
        if (message := processes.gather_objects(message)[0]) is not None:
            raise InputError(message)
        yield partial_folder(out.absolute())


def check_tensorboard(tensorboard: str | Path | None, out: Path | None) -> None:
    """Raise if TensorBoard's log would be inside the run's folder, which is renamed at the end."""
    if tensorboard is None or out is None:
        return
    for folder in (out.resolve(), partial_folder(out.resolve())):
        if Path(tensorboard).resolve().is_relative_to(folder):
            raise InputError(
                f"--tensorboard {tensorboard} lies inside of --out, which is written when the run "
                "is over; give a folder beside it"
            )


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
def fit_spinner(console: Console, method: str, epochs: int = 0) -> Iterator[Hooks]:
    """Show a spinner with the last message that the hasher logged; a fit has no epochs."""
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
