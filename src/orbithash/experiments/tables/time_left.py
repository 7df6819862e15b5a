"""Estimate of the time that the remaining runs of a table will take."""

from collections.abc import Iterable
from statistics import fmean

from orbithash.experiments.tables.plan import PlannedRun, RunKey

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
