"""Execution of many runs, in this process or in several, and an estimate of the time left.

A run that fails stops no other.
"""

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import fmean

from threadpoolctl import threadpool_limits

from orbithash.errors import HashingError
from orbithash.experiments.tables.plan import PlannedRun, RunKey
from orbithash.experiments.tables.run import execute_run, run_folder
from orbithash.training.machine.environment import exit_with_parent, set_threads


@dataclass(frozen=True)
class RunEvent:
    """Progress of a run: `epochs` done; with `seconds` it has succeeded, with `failure` failed."""

    epochs: int = 0
    seconds: float | None = None
    failure: str | None = None

    @property
    def is_end(self) -> bool:
        return self.seconds is not None or self.failure is not None


RunListener = Callable[[PlannedRun, RunEvent], None]


def execute_runs(
    runs: Sequence[PlannedRun], out: Path, *, jobs: int, on_event: RunListener
) -> None:
    """Execute all runs, up to `jobs` at a time; `on_event` gets every epoch and every end."""
    if jobs > 1:
        execute_in_parallel(runs, out, jobs=jobs, on_event=on_event)
        return
    for run in runs:
        execute_and_report(run, out, on_event)


def execute_and_report(run: PlannedRun, out: Path, on_event: RunListener) -> None:
    """Execute a run; report any exception as the failure of this run alone."""
    on_event(run, RunEvent())
    try:
        done = execute_run(
            run, out, after_epoch=lambda epoch: on_event(run, RunEvent(epochs=epoch.number + 1))
        )
    except HashingError as error:
        on_event(run, RunEvent(failure=str(error)))
    except Exception as error:
        # Unexpected: the traceback goes to a file beside the run.
        file = run_folder(run, out).with_suffix(".failed.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(traceback.format_exc(), encoding="utf-8")
        on_event(run, RunEvent(failure=f"{type(error).__name__}: {error} (see {file})"))
    else:
        run_folder(run, out).with_suffix(".failed.txt").unlink(missing_ok=True)
        on_event(run, RunEvent(seconds=done.seconds))


def execute_in_parallel(
    runs: Sequence[PlannedRun], out: Path, *, jobs: int, on_event: RunListener
) -> None:
    """Execute runs in processes that share the cores; a process that dies is replaced."""
    # The same number if fewer runs are left: the last digits of a run depend on its threads.
    threads = max(1, (os.cpu_count() or 1) // jobs)
    waiting = deque(runs)
    workers = [Worker(out, threads) for _ in range(min(jobs, len(runs)))]
    try:
        for worker in workers:
            worker.start(waiting.popleft())
        while busy := {worker.connection: worker for worker in workers if worker.run}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                run, event = worker.receive()
                on_event(run, event)
                if not event.is_end:
                    continue
                if not worker.process.is_alive():
                    workers[workers.index(worker)] = worker = Worker(out, threads)
                worker.run = None
                if waiting:
                    worker.start(waiting.popleft())
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()
            worker.connection.close()


class Worker:
    """A process that executes one run at a time."""

    def __init__(self, out: Path, threads: int) -> None:
        # Spawned, not forked: the threads of torch and numba do not survive a fork.
        # Not a daemon: daemons may not start the processes that read images.
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.process = context.Process(target=worker_loop, args=(child_connection, out, threads))
        self.process.start()
        child_connection.close()  # otherwise the pipe would stay open after the process ended
        self.run: PlannedRun | None = None

    def start(self, run: PlannedRun) -> None:
        self.run = run
        self.connection.send(run)

    def receive(self) -> tuple[PlannedRun, RunEvent]:
        """Return the next event of the run; the death of the process is a failure."""
        assert self.run is not None
        try:
            return self.run, self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            return self.run, RunEvent(failure=f"its process ended with code {code}")


def worker_loop(connection: Connection, out: Path, threads: int) -> None:
    """Execute the runs that arrive, until this process is terminated."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    exit_with_parent()
    threadpool_limits(threads)
    set_threads(threads)
    while True:
        try:
            execute_and_report(connection.recv(), out, lambda run, event: connection.send(event))
        except KeyboardInterrupt:  # a fine-tuned run has saved its state
            return


Group = tuple[object, ...]  # attributes that runs of similar duration share


class TimeLeft:
    """Durations of finished runs, and progress of those under way.

    A run is expected to take as long as finished runs of the same row, code length and source; if
    there are none, of the same row; if there are none, of the same kind, loss or hasher.
    """

    def __init__(self, runs: Iterable[PlannedRun], *, jobs: int) -> None:
        self.jobs = jobs
        self.waiting: dict[RunKey, PlannedRun] = {run.key: run for run in runs}
        self.share_done: dict[RunKey, float] = {}
        self.seconds: dict[Group, list[float]] = {}

    def finish(self, run: PlannedRun, seconds: float) -> None:
        """Record the duration of a run that succeeded, now or earlier."""
        for group in duration_groups(run):
            self.seconds.setdefault(group, []).append(seconds)
        self.discard(run)

    def discard(self, run: PlannedRun) -> None:
        """Wait for this run no longer: it finished or failed."""
        self.waiting.pop(run.key, None)

    def advance(self, run: PlannedRun, epochs: int) -> None:
        """Record the number of epochs that a run has done."""
        if run.max_epochs:
            self.share_done[run.key] = epochs / run.max_epochs

    def estimate(self) -> float | None:
        """Return the seconds until all are done; None while a run has no similar finished one."""
        left = 0.0
        for run in self.waiting.values():
            whole = self.expected_seconds(run)
            if whole is None:
                return None
            left += whole * (1 - self.share_done.get(run.key, 0.0))
        return left / max(1, min(self.jobs, len(self.waiting)))

    def expected_seconds(self, run: PlannedRun) -> float | None:
        groups = (group for group in duration_groups(run) if group in self.seconds)
        return next((fmean(self.seconds[group]) for group in groups), None)


def duration_groups(run: PlannedRun) -> tuple[Group, ...]:
    """Return the groups of runs that should take as long as this one, most similar first."""
    kind = "loss" if run.max_epochs else "hasher"
    return ((run.source.name, run.row, run.n_bits), (run.row,), (kind,))
