"""Many runs, one after another or several at once; one that fails does not stop the others."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numba
import torch
from threadpoolctl import threadpool_limits

from orbithash.errors import HashingError
from orbithash.experiments.tables.plan import Run
from orbithash.experiments.tables.run import execute, run_folder


@dataclass(frozen=True)
class Event:
    """How far a run is: so many epochs, or ended well after some seconds, or failed."""

    epochs: int = 0
    seconds: float | None = None
    failure: str | None = None

    @property
    def is_end(self) -> bool:
        return self.seconds is not None or self.failure is not None


Tell = Callable[[Run, Event], None]


def run_all(runs: Sequence[Run], out: Path, *, jobs: int, tell: Tell) -> None:
    """Execute all runs, `jobs` at once; `tell` hears of every epoch and of every end."""
    if jobs > 1:
        run_at_once(runs, out, jobs=jobs, tell=tell)
        return
    for run in runs:
        attempt(run, out, tell)


def attempt(run: Run, out: Path, tell: Tell) -> None:
    """Execute a run and tell how it ended; whatever goes wrong is that run's failure alone."""
    tell(run, Event())
    try:
        done = execute(
            run, out, after_epoch=lambda epoch: tell(run, Event(epochs=epoch.number + 1))
        )
    except HashingError as error:
        tell(run, Event(failure=str(error)))
    except Exception as error:
        # Not foreseen: the whole story goes to a file beside the run.
        file = run_folder(run, out).with_suffix(".failed.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(traceback.format_exc(), encoding="utf-8")
        tell(run, Event(failure=f"{type(error).__name__}: {error} (see {file})"))
    else:
        run_folder(run, out).with_suffix(".failed.txt").unlink(missing_ok=True)
        tell(run, Event(seconds=done.seconds))


def run_at_once(runs: Sequence[Run], out: Path, *, jobs: int, tell: Tell) -> None:
    """Execute runs in processes that share the cores; a process that dies is replaced."""
    # Not more where fewer runs are left: the number of threads shows in the last digits of a run.
    threads = max(1, (os.cpu_count() or 1) // jobs)
    waiting = deque(runs)
    crew = [Worker(out, threads) for _ in range(min(jobs, len(runs)))]
    try:
        for worker in crew:
            worker.begin(waiting.popleft())
        while busy := {worker.connection: worker for worker in crew if worker.run}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                run, event = worker.hear()
                tell(run, event)
                if not event.is_end:
                    continue
                if not worker.process.is_alive():
                    crew[crew.index(worker)] = worker = Worker(out, threads)
                worker.run = None
                if waiting:
                    worker.begin(waiting.popleft())
    finally:
        for worker in crew:
            worker.process.terminate()
            worker.process.join()
            worker.connection.close()


class Worker:
    """A process that executes the runs it is given, one at a time."""

    def __init__(self, out: Path, threads: int) -> None:
        # Spawned, not forked: the threads of torch and numba do not survive a fork.
        # Not a daemon, which might not have the processes that read images.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, out, threads))
        self.process.start()
        theirs.close()  # or the end of the process would not close the pipe
        self.run: Run | None = None

    def begin(self, run: Run) -> None:
        self.run = run
        self.connection.send(run)

    def hear(self) -> tuple[Run, Event]:
        """What became of the run; that the process died is its failure."""
        assert self.run is not None
        try:
            return self.run, self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            return self.run, Event(failure=f"its process ended with code {code}")


def serve(connection: Connection, out: Path, threads: int) -> None:
    """Execute runs as they come, until this process is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    end_with_parent()
    threadpool_limits(threads)
    numba.set_num_threads(threads)
    torch.set_num_threads(threads)
    while True:
        attempt(connection.recv(), out, lambda run, event: connection.send(event))


def end_with_parent() -> None:
    """A parent that is killed cannot end its workers, so they watch it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
