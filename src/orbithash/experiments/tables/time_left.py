"""How long the runs that are left will take, judged by those that are done."""

from collections.abc import Iterable, Mapping
from statistics import fmean

from orbithash.experiments.tables.plan import Run


class TimeLeft:
    """Knows how long runs took, and how far those are that have begun.

    A run is expected to take as long as others of its row at its code length on its source; where
    there is none, of its row; then of its kind, a loss or a hasher.
    """

    def __init__(self, runs: Iterable[Run], *, jobs: int) -> None:
        self.jobs = jobs
        self.waiting: dict[tuple[str, str, int, int], Run] = {run.key: run for run in runs}
        self.share_done: dict[tuple[str, str, int, int], float] = {}
        self.seconds: dict[tuple[object, ...], list[float]] = {}

    def took(self, run: Run, seconds: float) -> None:
        """A run that ended well, now or earlier."""
        for likeness in likenesses(run):
            self.seconds.setdefault(likeness, []).append(seconds)
        self.ended(run)

    def ended(self, run: Run) -> None:
        self.waiting.pop(run.key, None)

    def reached(self, run: Run, epochs: int) -> None:
        if run.epochs():
            self.share_done[run.key] = epochs / run.epochs()

    def estimate(self) -> float | None:
        """Seconds until all are done; None until one run of a kind like each has ended."""
        left = 0.0
        for run in self.waiting.values():
            whole = self.expected(run)
            if whole is None:
                return None
            left += whole * (1 - self.share_done.get(run.key, 0.0))
        return left / max(1, min(self.jobs, len(self.waiting)))

    def expected(self, run: Run) -> float | None:
        known: Mapping[tuple[object, ...], list[float]] = self.seconds
        return next((fmean(known[like]) for like in likenesses(run) if like in known), None)


def likenesses(run: Run) -> tuple[tuple[object, ...], ...]:
    """What a run has in common with others, the closest likeness first."""
    kind = "loss" if run.epochs() else "hasher"
    return ((run.source.name, run.row, run.n_bits), (run.row,), (kind,))
