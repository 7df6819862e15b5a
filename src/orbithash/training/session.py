"""What surrounds one training: processes, the run's folder, logs, a progress bar, and signals."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from orbithash.data import ImageFiles, ImageSource, LabelledFeatures, training_rows
from orbithash.encoders import Encoder, Epoch, load_run
from orbithash.encoders.runs.fingerprints import data_digest
from orbithash.encoders.runs.run_folder import (
    CHECKPOINT,
    CONTENTS,
    LOG,
    UNFINISHED,
    UNREADABLE,
    epoch_logger,
    is_finished,
    keep_trained_before,
    write_run,
    write_split,
)
from orbithash.errors import InputError
from orbithash.files import partial_folder, resumable_folder
from orbithash.training.checkpoint import Checkpoints, read_header
from orbithash.training.hooks import Hooks, UnreadableLog, call_all, tensorboard_writer
from orbithash.training.machine.distributed import Processes, joined_processes
from orbithash.training.machine.environment import Signals, interruption
from orbithash.training.settings import LATER_SETTINGS
from orbithash.training.time_left import TimeLeft, training_bar

N_NAMED = 5  # classes in a message

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingSession:
    """The folder, hooks, checkpoints and processes of one call to `train`."""

    processes: Processes
    base: Hooks
    log: Callable[[Epoch], None]
    bar: Callable[[str, int], Hooks]
    console: Console
    left: TimeLeft
    folder: Path | None = None
    checkpoint_every: float = 60.0
    unreadable: UnreadableLog | None = None
    resumed: bool = False
    held_out_classes: tuple[str, ...] = ()

    def hooks(self, stage: str, epochs: int, *, last_stage: bool = True) -> Hooks:
        """Return the hooks of a stage; only the last stage is logged, and can end early."""
        shown, base = self.bar(stage, epochs), self.base
        writers = (self.log, base.after_epoch) if last_stage else ()
        return replace(
            base,
            finishing=base.finishing if last_stage else lambda: False,
            after_epoch=call_all(*writers, shown.after_epoch),
            after_step=call_all(shown.after_step, base.after_step),
            after_images=call_all(shown.after_images, base.after_images),
        )

    def checkpoints(self, name: str = CHECKPOINT) -> Checkpoints | None:
        if self.folder is None:
            return None
        # Left out otherwise, to resume runs of earlier versions.
        identity = {"hold-out-classes": self.held_out_classes} if self.held_out_classes else {}
        return Checkpoints(
            self.folder / name,
            every=self.checkpoint_every,
            processes=self.processes,
            made_with=json.dumps(identity),
        )

    def announce(self, line: str) -> None:
        """Print the opening line."""
        self.console.print(line, highlight=False)

    def spinner(self, method: str) -> AbstractContextManager[None]:
        """Show that a hasher is being fitted."""
        return nullcontext() if self.console.quiet else fit_spinner(self.console, method)

    def keep_split(
        self, images: ImageSource, init: Any = None, *, validation: float, seed: int
    ) -> None:
        """Keep which images train the run and which trained the run to start from."""
        if not (self.processes.first and isinstance(images, ImageFiles)):
            return
        if self.folder:
            write_split(images, self.folder)
        if isinstance(init, str | Path):
            held_out = training_rows(images.labels, images.split, validation, seed=seed)[1]
            keep_trained_before(Path(init), images, held_out, self.folder)

    def save(self, encoder: Encoder) -> None:
        """Write the run, if it has a folder."""
        if self.unreadable is not None:
            self.unreadable.gather()
        if self.folder and self.processes.first:
            write_run(encoder, self.folder)


@contextmanager
def training_session(
    out: Path | None,
    hooks: Hooks,
    *,
    catch_signals: bool,
    resume: bool,
    force: bool,
    checkpoint_every: float,
    tensorboard: str | Path | None,
    progress: bool,
    held_out_classes: tuple[str, ...] = (),
) -> Iterator[TrainingSession]:
    """Join the processes, open the run's folder, show progress, and catch signals."""
    with ExitStack() as stack:
        processes = stack.enter_context(joined_processes())
        folder = unreadable = None
        resumed = False
        signals = Signals()
        writers = []
        if out is not None:
            resumed = resume and any((partial_folder(out) / name).exists() for name in UNFINISHED)
            folder = stack.enter_context(shared_folder(out, processes, resume, force))
            unreadable = UnreadableLog(folder / UNREADABLE, processes)
            if processes.first:
                writers.append(epoch_logger(folder / LOG))
            if catch_signals:
                # A run that can be resumed stops between two steps; any other ends at once.
                signals = stack.enter_context(interruption())
        if tensorboard is not None and processes.first:
            writers.append(stack.enter_context(tensorboard_writer(Path(tensorboard))))
        shown = progress and processes.first
        console, left = Console(quiet=not shown), TimeLeft()
        bar = stack.enter_context(training_bar(console, left)) if shown else no_bar
        yield TrainingSession(
            processes,
            replace(
                hooks,
                unreadable=call_all(*filter(None, [unreadable]), hooks.unreadable),
                stopping=lambda: signals.stopping() or hooks.stopping(),
                finishing=lambda: signals.finishing() or hooks.finishing(),
            ),
            call_all(*writers),
            bar,
            console,
            left,
            folder,
            checkpoint_every,
            unreadable,
            resumed,
            held_out_classes,
        )


def no_bar(stage: str, epochs: int) -> Hooks:
    """Show nothing."""
    return Hooks()


@contextmanager
def shared_folder(out: Path, processes: Processes, resume: bool, force: bool) -> Iterator[Path]:
    """Yield the run's folder to all processes; the first creates it and renames it at the end."""
    created = resumable_folder(out, contents=CONTENTS, state=UNFINISHED, resume=resume, force=force)
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


def check_begun(out: Path | None) -> None:
    """Raise unless there is a run to finish, with at least one saved state."""
    if out is None or not (partial_folder(out).exists() or is_finished(out)):
        raise InputError(f"there is no unfinished run {out or ''}; leave --finish out to start one")
    checkpoint = partial_folder(out) / CHECKPOINT
    begun = checkpoint.exists() and read_header(checkpoint)["values"]["history"]
    if not is_finished(out) and not begun:
        raise InputError(
            "there is no epoch to keep yet; continue the run with --resume instead of --finish"
        )


def finished_run(out: Path, expected: Mapping[str, Any], changes: Mapping[str, Any]) -> Encoder:
    """Load a finished run; raise if it was trained otherwise than is asked for now."""
    encoder = load_run(out)
    if encoder.training is None:
        return encoder
    record = encoder.training.record
    found = {name: getattr(record, name) for name in expected} | LATER_SETTINGS
    found |= record.settings
    found["nested"] = ",".join(map(str, record.prefixes())) or "none"
    found["held_out_classes"] = ",".join(record.held_out_classes)
    for name, wanted in {**expected, **changes}.items():
        if wanted is not None and found.get(name, wanted) != as_json(wanted):
            raise InputError(
                f"{out} is a finished run with {name}={found[name] or 'none'}, but here it is "
                f"{wanted or 'none'}; give --out another name, or add --force to replace it"
            )
    return encoder


def check_same_data(
    encoder: Encoder, out: Path, name: str, read: Callable[[], ImageSource | LabelledFeatures]
) -> None:
    """Raise if a finished run was trained on other data; of the same name, they are not read."""
    record = encoder.training.record if encoder.training else None
    if record is None or not record.data_digest or record.source == name:
        return
    if data_digest(read()) != record.data_digest:
        raise InputError(
            f"{out} is a finished run on {record.source}, and {name} holds other data; give --out "
            "another name, or add --force to replace it"
        )


def as_json(value: Any) -> Any:
    """Return a value as it is when it was written as JSON."""
    return json.loads(json.dumps(value))


def warn_of_seen_before(held_out: Sequence[str], init: Encoder | None) -> None:
    before = init.training.record.held_out_classes if init and init.training else ()
    if init is not None and (seen := [name for name in held_out if name not in before]):
        logger.warning(
            "the run to start from did not hold out %s: scores of unseen classes will be too high; "
            "start from a run with the same --hold-out-classes",
            shortened(seen),
        )


def shortened(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return ", ".join(names[:N_NAMED]) + more


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
def fit_spinner(console: Console, method: str) -> Iterator[None]:
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
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
        bar.update(task, completed=1)


class MessageHandler(logging.Handler):
    """Passes the message of every log record to a function."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        self.show(record.getMessage())
