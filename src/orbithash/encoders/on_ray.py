"""Encoding on the machines of a Ray cluster.

Ray Data hands out batches of rows to a pool of workers, each with an encoder of its own, and waits
while results are not taken. Results come back in order. When a worker dies, its batch is repeated.
The machines need this library, and the images under the same paths.
"""

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Int64

from orbithash.data import ImageFiles
from orbithash.encoders.encoder import (
    Data,
    Encoded,
    Encoder,
    Progress,
    check_encodes,
    no_progress,
)
from orbithash.errors import HashingError, InputError, MissingExtraError, ServerError
from orbithash.files import absolute_name

BATCH = 256  # items of one task: whole batches of an encoder, so that codes are the same
PATIENCE = 10.0  # seconds for a cluster to accept a connection
MAX_BLOCKS = 10_000  # in which Ray Data plans the batches

Result = TypeVar("Result")


def embed_on_ray(
    encoder: Encoder,
    data: Data,
    batches: Sequence[Int64[np.ndarray, " _"]],
    progress: Progress = no_progress,
    *,
    address: str,
) -> Iterator[Encoded]:
    """Embed each batch of rows of a source, in order, as `Encoder.embed_batches` does."""
    return map_on_ray(encoder, data, batches, progress, address=address, then=unchanged)


def encode_on_ray(
    encoder: Encoder,
    data: Data,
    rows: Int64[np.ndarray, " wanted"],
    progress: Progress = no_progress,
    *,
    address: str,
) -> Encoded:
    """Encode these rows of a source; unreadable images are left out and listed."""
    parts = list(embed_on_ray(encoder, data, ray_batches(rows), progress, address=address))
    unreadable = {path: reason for part in parts for path, reason in part.unreadable.items()}
    return Encoded(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.embeddings for part in parts]),
        unreadable,
    )


def map_on_ray(
    encoder: Encoder,
    data: Data,
    batches: Sequence[Int64[np.ndarray, " _"]],
    progress: Progress = no_progress,
    *,
    address: str,
    then: Callable[[Encoded], Result],
) -> Iterator[Result]:
    """Embed each batch of rows on a worker, call `then` there, and yield what it returns.

    A batch whose worker died is repeated, so `then` may see it twice. `address` is a cluster's, or
    "local" for one of this machine.
    """
    check_encodes(encoder, data)
    if not batches:
        return
    from orbithash.encoders.runs.model_file import encoder_to_bytes

    if isinstance(data, ImageFiles):  # workers run in other folders
        data = replace(data, root=Path(absolute_name(data.root)))
    job = Job(encoder_to_bytes(encoder), device_of(encoder), data, list(batches), then)
    done, total = 0, sum(map(len, batches))
    with connected(address) as ray:
        for batch, result in zip(batches, results(ray, job), strict=True):
            yield result
            done += len(batch)
            progress(done, total)


def ray_batches(rows: Int64[np.ndarray, " n"]) -> list[Int64[np.ndarray, " m"]]:
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]


@dataclass(frozen=True, eq=False)
class Job(Generic[Result]):
    """What all workers have in common; it is sent to each machine once."""

    encoder: bytes
    device: str
    data: Data
    batches: list[Int64[np.ndarray, " _"]]
    then: Callable[[Encoded], Result]


class Worker:
    """An actor that encodes batches, which Ray Data gives by their numbers."""

    def __init__(self, reference: Any) -> None:
        import ray

        from orbithash.encoders.runs.model_file import encoder_from_bytes

        self.job: Job[Any] = ray.get(reference)
        encoder = encoder_from_bytes(self.job.encoder).to(self.job.device)
        self.embed = embedding_of(encoder, self.job)

    def __call__(self, numbers: dict[str, Any]) -> dict[str, list[bytes]]:
        return {"result": [pickle.dumps(self.result(int(n))) for n in numbers["item"]]}

    def result(self, number: int) -> Any:
        """Return an error instead of raising it: Ray would send its text alone."""
        try:
            return self.job.then(self.embed(self.job.batches[number]))
        except Exception as error:
            return failure(error)


def embedding_of(encoder: Encoder, job: Job[Any]) -> Callable[[Int64[np.ndarray, " n"]], Encoded]:
    """Return a function that embeds rows by the runtime that one machine would choose."""
    from orbithash.encoders.image_encoder import ImageEncoder
    from orbithash.encoders.runtime import choose_runtime, run_by

    if not isinstance(encoder, ImageEncoder):
        return lambda rows: next(iter(encoder.embed_batches(job.data, [rows])))
    runtime = choose_runtime(encoder.backbone, n_images=sum(map(len, job.batches)))
    run = run_by(runtime, encoder.backbone, side=encoder.view.crop)
    return partial(encoder.embed_rows, job.data, run=run)  # type: ignore[arg-type]


def results(ray: Any, job: Job[Result]) -> Iterator[Result]:
    """Run the job on the cluster, and yield the result of each batch in order."""
    from ray.data import ActorPoolStrategy, DataContext, from_items

    kind = "CPU" if job.device == "cpu" else "GPU"
    needs: dict[str, Any] = {f"num_{kind.lower()}s": 1}
    n_workers = min(int(ray.cluster_resources().get(kind, 0)), len(job.batches))
    if not n_workers:
        raise InputError(f"the Ray cluster has no {kind}; add a machine, or change --device")
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    numbers = from_items(
        list(range(len(job.batches))), override_num_blocks=min(len(job.batches), MAX_BLOCKS)
    )
    encoded = numbers.map_batches(
        Worker,
        fn_constructor_args=(ray.put(job),),
        batch_size=1,
        compute=ActorPoolStrategy(size=n_workers),
        **needs,
    )
    try:
        for row in encoded.iter_rows():
            result = pickle.loads(row["result"])  # of workers whose pickles Ray loads anyway
            if isinstance(result, HashingError):
                raise result
            yield result
    except ray.exceptions.RayError as error:
        raise failure(error) from error


def failure(error: Exception) -> HashingError:
    """Return our own error of a worker by its message, or one that names another's."""
    if isinstance(error, InputError | ServerError):
        kind = InputError if isinstance(error, InputError) else ServerError
        return kind(str(error))  # the class itself may not be sent between processes
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line]
    detail = lines[-1] if lines else f"{type(error).__name__}: {error}"
    return ServerError(f"encoding on Ray failed: {detail}")


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to the cluster, or start one, for as long as it is needed; yield the module `ray`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it logs what Ray Data does on purpose
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("ray") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it reports each step of its plan
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise ServerError(
            f"no Ray cluster answers at {address} ({error}); start one with `ray start --head`, "
            "check host and port, or give local"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise unless something listens at HOST:PORT, for which Ray would wait minutes."""
    host, colon, port = address.rpartition("/")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


def device_of(encoder: Encoder) -> str:
    backbone = getattr(encoder, "backbone", None)
    return "cpu" if backbone is None else str(next(backbone.parameters()).device)


def unchanged(encoded: Encoded) -> Encoded:
    return encoded
