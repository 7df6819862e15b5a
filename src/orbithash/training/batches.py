"""The batches of the loop: from tensors in memory, or from images that worker processes read.

Each random view of an image depends only on the seed and the position in the run, so neither the
number of workers nor an interruption changes anything. An unreadable image is replaced by a
related one, which keeps the batch's triplets.
"""

import signal
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from orbithash.data import ImageSource
from orbithash.errors import InputError, UnreadableImageError
from orbithash.relevance import related
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.machine.environment import exit_with_parent

BATCHES_AHEAD = 2  # of every worker


@runtime_checkable
class Batcher(Protocol):
    """Yields the row positions of each batch of an epoch, the same ones at every call."""

    def __len__(self) -> int: ...

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]: ...


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs and labels of one training step."""

    inputs: Shaped[Tensor, "n ..."]  # floats, or pixels as bytes
    labels: Shaped[Tensor, "n *classes"]
    teacher: Float[Tensor, "n d"] | None = None  # vectors for losses that take a teacher


@runtime_checkable
class BatchSource(Protocol):
    """Yields the batches of an epoch from number `first` on, the same ones at every call.

    With several processes, each gets its own share of every batch.
    """

    def __len__(self) -> int: ...

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]: ...


@dataclass(frozen=True, eq=False)
class InputViews:
    """Inputs as they are encoded, and further views of them, those of one image side by side."""

    inputs: Float[Tensor, "n ..."]
    further: Float[Tensor, "views ..."]  # may have half precision
    first: Int64[np.ndarray, " n"]  # position of each image's first further view
    count: Int64[np.ndarray, " n"]  # number of its further views
    seed: int = 0

    def draw(
        self, positions: Int64[np.ndarray, " batch"], epoch: int, batch: int
    ) -> Float[Tensor, "batch ..."]:
        """Return a random view of each of these images, the same one at every call."""
        drawn = self.inputs[torch.from_numpy(positions)]
        rng = np.random.default_rng([self.seed, epoch, batch])
        # View number 0 is the input itself.
        numbers = (rng.random(len(positions)) * (1 + self.count[positions])).astype(np.int64)
        places = np.flatnonzero(numbers)
        rows = self.first[positions[places]] + numbers[places] - 1
        drawn[torch.from_numpy(places)] = self.further[torch.from_numpy(rows)].to(drawn.dtype)
        return drawn


def single_views(inputs: Float[Tensor, "n ..."]) -> InputViews:
    """Return images without further views."""
    none = np.zeros(len(inputs), dtype=np.int64)
    return InputViews(inputs, inputs[:0], none, none)


def several_views(
    inputs: Float[Tensor, "n *shape"],
    views: Float[Tensor, "v *shape"],
    view_of: Int64[np.ndarray, " v"],
    *,
    seed: int,
) -> InputViews:
    """Return the images with further views; `view_of` is the position of each view's image."""
    order = np.argsort(view_of, kind="stable")
    count = np.bincount(view_of, minlength=len(inputs))
    return InputViews(inputs, views[torch.from_numpy(order)], np.cumsum(count) - count, count, seed)


@dataclass(frozen=True, eq=False)
class TensorBatches:
    """Batches of inputs in memory; `batches` yields positions in `views`.

    The teacher's vectors are the inputs as they are encoded, whichever views are drawn.
    """

    views: InputViews
    labels: Shaped[Tensor, "n *classes"]
    batches: Batcher
    processes: Processes = SINGLE_PROCESS
    with_teacher: bool = False

    def __len__(self) -> int:
        return len(self.batches)

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for number, rows in islice(enumerate(self.batches(epoch)), first, None):
            share = self.processes.share(len(rows))
            inputs = self.views.draw(rows, epoch, number)[share]
            positions = torch.from_numpy(rows[share])
            teacher = self.views.inputs[positions].flatten(1) if self.with_teacher else None
            yield Batch(inputs, self.labels[positions], teacher)


@runtime_checkable
class ReadView(Protocol):
    """Reads a random view of an image; the generator determines which."""

    def __call__(
        self, image: Any, *, rng: np.random.Generator
    ) -> UInt8[np.ndarray, "height width 3"]: ...


@dataclass(frozen=True, eq=False)
class ImageTask:
    """One batch to read: its number in the run, and the positions of its images."""

    epoch: int
    batch: int
    positions: Int64[np.ndarray, " batch"]


@dataclass(frozen=True, eq=False)
class Pixels:
    """The pixels of a process's share of a batch, and the images that could not be read."""

    pixels: UInt8[np.ndarray, "n height width 3"]
    positions: Int64[np.ndarray, " n"]
    unreadable: dict[int, str]  # the reason by position


class ImageReader(Dataset[Pixels | InputError]):
    """Reads batches; every worker process has a copy.

    An error that stops the run is returned like a batch: raised in a worker, it would reach the
    user with the worker's traceback in its message.
    """

    def __init__(
        self,
        images: ImageSource,
        rows: Int64[np.ndarray, " train"],
        labels: Shaped[np.ndarray, "train *classes"],
        read: ReadView,
        *,
        seed: int,
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        self.images, self.rows, self.labels = images, rows, labels
        self.read, self.seed, self.processes = read, seed, processes

    def __getitem__(self, task: ImageTask) -> Pixels | InputError:
        taken = set(task.positions.tolist())
        pixels, positions, unreadable = [], [], {}
        share = self.processes.share(len(task.positions))
        for place in range(share.start, share.stop):
            # By place in the batch, not by position: a small class may repeat an image.
            rng = np.random.default_rng([self.seed, task.epoch, task.batch, place])
            for position in self.candidates(int(task.positions[place]), taken, rng):
                try:
                    pixels.append(self.read(self.images.image(int(self.rows[position])), rng=rng))
                except UnreadableImageError as error:
                    unreadable[position] = error.reason
                    continue
                except InputError as error:
                    return InputError(str(error))
                positions.append(position)
                taken.add(position)
                break
            else:
                return InputError(
                    f"hardly any of the {len(self.rows)} training images in {self.images} "
                    f"can be read, such as {self.images.paths[self.rows[task.positions[place]]]}: "
                    f"{unreadable[int(task.positions[place])]}; check the files"
                )
        return Pixels(np.stack(pixels), np.array(positions, dtype=np.int64), unreadable)

    def candidates(self, wanted: int, taken: set[int], rng: np.random.Generator) -> Iterator[int]:
        """Yield the wanted image, then substitutes for it: related images, then any others."""
        yield wanted
        substitutes = np.random.default_rng(rng.integers(1 << 32))
        similar = related(self.labels[[wanted]], self.labels)[0]
        for group in (np.flatnonzero(similar), np.flatnonzero(~similar)):
            for position in substitutes.permutation(group).tolist():
                if position not in taken:
                    yield position


@dataclass(eq=False)
class ImageBatches:
    """Batches of images for the loop, a `BatchSource`.

    `batches` yields positions in the reader's rows, for `epochs` epochs. `unreadable` is called
    with path and reason whenever an image cannot be read. `teacher` has a vector for each of the
    reader's rows, for losses that take one.
    """

    reader: ImageReader
    batches: Batcher
    epochs: int
    teacher: Float[Tensor, "train d"] | None = None
    n_workers: int = 0
    unreadable: Callable[[str, str], None] = lambda path, reason: None
    _stream: Generator[Pixels | InputError, None, None] | None = field(default=None, init=False)
    _at: tuple[int, int] = field(default=(0, 0), init=False)  # the next epoch and batch

    def __len__(self) -> int:
        return len(self.batches)

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for number in range(first, len(self)):
            loaded = self._next(epoch, number)
            for position, reason in loaded.unreadable.items():
                self.unreadable(self.reader.images.paths[self.reader.rows[position]], reason)
            labels = torch.from_numpy(self.reader.labels[loaded.positions])
            teacher = None
            if self.teacher is not None:
                teacher = self.teacher[torch.from_numpy(loaded.positions)]
            yield Batch(as_input(loaded.pixels), labels, teacher)

    def close(self) -> None:
        """End the workers."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def _next(self, epoch: int, number: int) -> Pixels:
        """Return the next batch of one stream over all epochs, so that workers start only once."""
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
            # Workers may outnumber the cores: they mostly wait where files come over a network.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            loader = DataLoader(
                self.reader,
                batch_size=None,  # the reader returns whole batches
                sampler=list_tasks(self.batches, epoch, number, self.epochs),
                collate_fn=unchanged,  # type: ignore[arg-type]
                num_workers=self.n_workers,
                prefetch_factor=BATCHES_AHEAD if self.n_workers else None,
                worker_init_fn=start_worker,
                # Its own: the loader draws a seed, which would shift the numbers for dropout.
                generator=torch.Generator(),
            )
            stream = iter(loader)
        try:
            yield from stream
        finally:
            if self.n_workers:
                # Now, not when the last traceback that holds the stream is released: workers ignore
                # signals, so a process that ends before them would wait forever.
                stream._shutdown_workers()  # type: ignore[attr-defined]


def list_tasks(batches: Batcher, epoch: int, first: int, epochs: int) -> Iterator[ImageTask]:
    """List the batches of this epoch from number `first` on, and of all later epochs."""
    for number in range(epoch, epochs):
        for place, positions in enumerate(batches(number)):
            if number > epoch or place >= first:
                yield ImageTask(number, place, positions)


def as_input(pixels: UInt8[np.ndarray, "n height width 3"]) -> UInt8[Tensor, "n 3 height width"]:
    # In memory the channels come last, the fastest layout for convolutions on a CPU.
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def unchanged(pixels: Pixels | InputError) -> Pixels | InputError:
    """Keep arrays as arrays: tensors would be sent through shared memory, which is often small."""
    return pixels


def start_worker(worker: int) -> None:
    """Ignore signals, and exit with the parent.

    Ctrl-C reaches all processes of a terminal, and the parent still needs its batch then.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    exit_with_parent()
