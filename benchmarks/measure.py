"""How the benchmarks measure: competitors in turns, the shortest time of each, one line a claim."""

import time
from collections.abc import Callable


def best(*runs: Callable[[], object], repeats: int) -> list[float]:
    """The shortest time of each, taken in turns so that a noisy moment strikes all."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, measured in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            measured.append(time.perf_counter() - start)
    return [min(measured) for measured in times]


def at_least(what: str, value: float, bar: float) -> bool:
    return verdict(what, value, f"at least {bar}", value >= bar)


def at_most(what: str, value: float, bar: float) -> bool:
    return verdict(what, value, f"at most {bar}", value <= bar)


def verdict(what: str, value: float, bar: str, passed: bool) -> bool:
    print(f"  {what:<56} {value:8.2f}   {bar:<13} {'ok' if passed else 'MISSED'}")
    return passed
