"""Measurement of the benchmarks: best times of alternating runs, and one line per claim."""

import time
from collections.abc import Callable


def best(*runs: Callable[[], object], repeats: int) -> list[float]:
    """Return the shortest time of each run; they alternate, so that noise affects all."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, measured in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            measured.append(time.perf_counter() - start)
    return [min(measured) for measured in times]


def at_least(claim: str, value: float, bar: float) -> bool:
    return verdict(claim, value, f"at least {bar}", value >= bar)


def at_most(claim: str, value: float, bar: float) -> bool:
    return verdict(claim, value, f"at most {bar}", value <= bar)


def verdict(claim: str, value: float, bar: str, passed: bool) -> bool:
    print(f"  {claim:<56} {value:8.2f}   {bar:<13} {'ok' if passed else 'MISSED'}")
    return passed
