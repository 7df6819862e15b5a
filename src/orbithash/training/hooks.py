"""Callbacks of training: an end to it, TensorBoard, and the list of unreadable images."""

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orbithash.encoders import Epoch
from orbithash.encoders.encoding import read_unreadable
from orbithash.errors import InputError, MissingExtraError
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hooks:
    """Functions that training calls; each does nothing unless it is given."""

    after_epoch: Callable[[Epoch], None] = lambda epoch: None
    after_step: Callable[[float, float], None] = lambda epochs, loss: None  # epochs with fractions
    after_images: Callable[[int, int], None] = lambda done, total: None  # whose features are known
    unreadable: Callable[[str, str], None] = lambda path, reason: None  # once per encounter
    stopping: Callable[[], bool] = lambda: False  # True: save the state and raise `Interrupted`
    finishing: Callable[[], bool] = lambda: False  # True: end now, and keep the best epoch so far


def call_all(*functions: Callable[..., None]) -> Callable[..., None]:
    """Return a function that passes its arguments to all functions."""

    def call(*arguments: Any) -> None:
        for function in functions:
            function(*arguments)

    return call


def finishing_hooks(hooks: Hooks, *, stop_after: float | None, finish: bool) -> Hooks:
    """Return the hooks, with an end to training: now, or after some minutes."""
    if stop_after is not None and not stop_after > 0:
        raise InputError(f"stop_after is {stop_after}; give minutes above 0")
    if not finish and stop_after is None:
        return hooks
    end = time.monotonic() + (0.0 if finish else 60 * (stop_after or 0.0))
    return replace(hooks, finishing=lambda: time.monotonic() >= end or hooks.finishing())


@contextmanager
def tensorboard_writer(folder: Path) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function that adds every metric of an epoch to TensorBoard's folder.

    A resumed run passes its earlier epochs first, so older entries are purged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from packages that tensorboard imports
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder), purge_step=0)
    except ImportError:
        raise MissingExtraError("tensorboard") from None
    except OSError as error:
        raise InputError(
            f"cannot write into {folder}: {error.strerror}; give --tensorboard another folder"
        ) from None

    def write(epoch: Epoch) -> None:
        for name, value in asdict(epoch).items():
            if name != "number" and value is not None:
                writer.add_scalar(name, value, epoch.number)
        writer.flush()

    try:
        yield write
    finally:
        writer.close()


class UnreadableLog:
    """A file of unreadable images that grows during training: each path once, with the reason.

    It is kept when a run is resumed. With several processes the first one writes: its own images
    as they are met, and those of the others at the end.
    """

    def __init__(self, file: Path, processes: Processes = SINGLE_PROCESS) -> None:
        self.file, self.processes = file, processes
        if processes.first:
            cut_unfinished_line(file)
        self.reasons = read_unreadable(file)

    def __call__(self, path: str, reason: str) -> None:
        if path in self.reasons:
            return
        self.reasons[path] = reason
        logger.info("cannot read %s: %s", path, reason)
        if not self.processes.first:
            return
        with self.file.open("a", encoding="utf-8") as opened:
            opened.write(f"{path}\t{reason}\n")

    def gather(self) -> None:
        """Add the images that the other processes met; all processes must call this together."""
        for reasons in self.processes.gather_objects(self.reasons):
            for path, reason in reasons.items():
                self(path, reason)


def cut_unfinished_line(file: Path) -> None:
    """Drop the line that a killed process was writing; its image will be met again."""
    if file.exists():
        content = file.read_bytes()
        if not content.endswith(b"\n"):
            file.write_bytes(content[: content.rfind(b"\n") + 1])
