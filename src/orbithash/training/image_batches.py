"""Batches of image files, read and augmented by worker processes a little ahead of the network.

What an image looks like follows from the seed and its place in the run alone, so that neither the
number of workers nor a stop in between changes anything. A file that cannot be read is replaced by
a related image, which keeps the batch's triplets.
"""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from orbithash.data import ImageFiles
from orbithash.errors import InputError, UnreadableImageError
from orbithash.relevance import related
from orbithash.training.batches import Batch, Batcher
from orbithash.training.distributed import ALONE, Processes

BATCHES_AHEAD = 2  # of every worker


@runtime_checkable
class ReadView(Protocol):
    """Reads a random view of an image file; the generator decides which."""

    def __call__(
        self, path: Path, *, rng: np.random.Generator
    ) -> UInt8[np.ndarray, "height width 3"]: ...


@dataclass(frozen=True, eq=False)
class ImageTask:
    """One batch to read: its place in the run, and the positions of its images."""

    epoch: int
    batch: int
    positions: Int64[np.ndarray, " batch"]


@dataclass(frozen=True, eq=False)
class Pixels:
    """A process's share of a batch as it was read, and what could not be."""

    pixels: UInt8[np.ndarray, "n height width 3"]
    positions: Int64[np.ndarray, " n"]
    unreadable: dict[int, str]  # the reason by position


class ImageReader(Dataset[Pixels | InputError]):
    """Reads batches; every worker process has a copy.

    What stops the run is handed over like a batch: an error that is raised in a worker would reach
    the user with the worker's traceback in its text.
    """

    def __init__(
        self,
        images: ImageFiles,
        rows: Int64[np.ndarray, " train"],
        labels: Shaped[np.ndarray, "train *classes"],
        read: ReadView,
        *,
        seed: int,
        processes: Processes = ALONE,
    ) -> None:
        self.images, self.rows, self.labels = images, rows, labels
        self.read, self.seed, self.processes = read, seed, processes

    def __getitem__(self, task: ImageTask) -> Pixels | InputError:
        taken = set(task.positions.tolist())
        pixels, positions, unreadable = [], [], {}
        share = self.processes.share(len(task.positions))
        for place in range(share.start, share.stop):
            # The place, not the position: a small class may show an image twice.
            rng = np.random.default_rng([self.seed, task.epoch, task.batch, place])
            for position in self.candidates(int(task.positions[place]), taken, rng):
                try:
                    pixels.append(self.read(self.images.file(int(self.rows[position])), rng=rng))
                except UnreadableImageError as error:
                    unreadable[position] = error.reason
                    continue
                positions.append(position)
                taken.add(position)
                break
            else:
                return InputError(
                    f"hardly any of the {len(self.rows)} training images in {self.images.root} "
                    f"can be read, as {self.images.paths[self.rows[task.positions[place]]]}: "
                    f"{unreadable[int(task.positions[place])]}; check the files"
                )
        return Pixels(np.stack(pixels), np.array(positions, dtype=np.int64), unreadable)

    def candidates(self, wanted: int, taken: set[int], rng: np.random.Generator) -> Iterator[int]:
        """The image that is wanted; should it be unreadable, related ones, and then any."""
        yield wanted
        stand_ins = np.random.default_rng(rng.integers(1 << 32))
        similar = related(self.labels[[wanted]], self.labels)[0]
        for group in (np.flatnonzero(similar), np.flatnonzero(~similar)):
            for position in stand_ins.permutation(group).tolist():
                if position not in taken:
                    yield position


@dataclass(eq=False)
class ImageBatches:
    """Batches of image files for the loop, as `BatchSource` says.

    `batches` names positions among the images that the reader reads; `epochs` is where they end.
    `unreadable` is told of every file that cannot be read, as often as it is met.
    """

    reader: ImageReader
    batches: Batcher
    epochs: int
    n_workers: int = 0
    unreadable: Callable[[str, str], None] = lambda path, reason: None
    _stream: Generator[Pixels | InputError, None, None] | None = field(default=None, init=False)
    _at: tuple[int, int] = field(default=(0, 0), init=False)  # epoch and batch that come next

    def __len__(self) -> int:
        return len(self.batches)

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for number in range(first, len(self)):
            loaded = self._next(epoch, number)
            for position, reason in loaded.unreadable.items():
                self.unreadable(self.reader.images.paths[self.reader.rows[position]], reason)
            labels = torch.from_numpy(self.reader.labels[loaded.positions])
            yield Batch(as_input(loaded.pixels), labels)

    def close(self) -> None:
        """End the workers."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def _next(self, epoch: int, number: int) -> Pixels:
        """The next batch of one stream over all epochs: workers are not started anew for each."""
        if self._stream is None or self._at != (epoch, number):
            self.close()
            self._stream = self._start(epoch, number)
        pixels = next(self._stream)
        if isinstance(pixels, InputError):
            raise pixels
        self._at = (epoch, number + 1) if number + 1 < len(self) else (epoch + 1, 0)
        return pixels

    def _start(self, epoch: int, number: int) -> Generator[Pixels | InputError, None, None]:
        with warnings.catch_warnings():
            # Workers may outnumber the cores: where files come over a network, they mostly wait.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            loader = DataLoader(
                self.reader,
                batch_size=None,  # the reader makes whole batches
                sampler=list_tasks(self.batches, epoch, number, self.epochs),
                collate_fn=unchanged,  # type: ignore[arg-type]
                num_workers=self.n_workers,
                prefetch_factor=BATCHES_AHEAD if self.n_workers else None,
                worker_init_fn=depend_on_the_parent,
                # Its own: a loader draws once when it starts, and would shift what dropout draws.
                generator=torch.Generator(),
            )
            stream = iter(loader)
        try:
            yield from stream
        finally:
            if self.n_workers:
                # At once, and not when the last traceback that holds the stream is forgotten:
                # workers ignore signals, so that a process which ends before them waits for ever.
                stream._shutdown_workers()  # type: ignore[attr-defined]


def list_tasks(batches: Batcher, epoch: int, first: int, epochs: int) -> Iterator[ImageTask]:
    """The batches of this epoch from number `first` on, and of all epochs that follow."""
    for number in range(epoch, epochs):
        for place, positions in enumerate(batches(number)):
            if number > epoch or place >= first:
                yield ImageTask(number, place, positions)


def as_input(pixels: UInt8[np.ndarray, "n height width 3"]) -> Float[Tensor, "n 3 height width"]:
    # Channels already come last in memory, as convolutions on a processor like it best.
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float()


def unchanged(pixels: Pixels | InputError) -> Pixels | InputError:
    """Arrays stay arrays: tensors would travel through shared memory, which is often small."""
    return pixels


def depend_on_the_parent(worker: int) -> None:
    """Let the parent decide when its workers end, and end with it when it is killed.

    Ctrl-C reaches all processes of a terminal, and the parent still wants its batch then. A worker
    that is left alone would wait for ever to hand over what nobody takes.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end_with_the_parent, daemon=True).start()


def end_with_the_parent() -> None:
    # The process that trains, even where a server has forked this one for it.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
