"""Methods compared on one dataset: the scores of each, and all that repeats the comparison."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from orbithash.data import LabelledFeatures
from orbithash.evaluation import Scores
from orbithash.experiments.tables.statistics import mean_bounds
from orbithash.index import Neighbours


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method at one code length, run from several seeds."""

    method: str
    kind: Literal["deep", "shallow"]
    n_bits: int
    runs: tuple[Scores, ...]
    neighbours: Neighbours  # of every query, by the first run
    trials: tuple[Mapping[str, Any], ...] = ()  # that chose its settings

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The trial with the highest validation MAP; on ties, the first one."""
        return max(self.trials, key=lambda trial: float(trial["map"]), default=None)

    @property
    def map(self) -> float:
        """The mean over the runs."""
        return float(np.mean([scores.map for scores in self.runs]))

    @property
    def map_spread(self) -> float:
        """The standard deviation over the runs."""
        return float(np.std([scores.map for scores in self.runs], ddof=min(1, len(self.runs) - 1)))

    @property
    def map_bounds(self) -> tuple[float, float]:
        return mean_bounds(self.runs)

    def values(self) -> dict[str, object]:
        return {
            "method": self.method,
            "kind": self.kind,
            "n_bits": self.n_bits,
            "map": self.map,
            "map_spread": self.map_spread,
            "map_bounds": self.map_bounds,
            "trials": [dict(trial) for trial in self.trials],
            "runs": [json.loads(scores.to_json()) for scores in self.runs],
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """The outcomes of all methods, with the settings and versions that gave them."""

    dataset: LabelledFeatures
    outcomes: tuple[Outcome, ...]
    skipped: tuple[str, ...]  # methods that could not be run, each with the reason
    settings: Mapping[str, object]
    versions: Mapping[str, str]

    def best(self, n_bits: int) -> Outcome:
        return self.ranked(n_bits)[0]

    def code_lengths(self) -> list[int]:
        return sorted({outcome.n_bits for outcome in self.outcomes})

    def ranked(self, n_bits: int) -> list[Outcome]:
        """The outcomes at this code length, highest MAP first."""
        return sorted((o for o in self.outcomes if o.n_bits == n_bits), key=lambda o: -o.map)

    def methods(self) -> list[str]:
        """The methods, those with the highest MAP at the longest codes first."""
        ranked = [o for n_bits in reversed(self.code_lengths()) for o in self.ranked(n_bits)]
        return list(dict.fromkeys(outcome.method for outcome in ranked))

    def of(self, method: str, n_bits: int) -> Outcome | None:
        found = [o for o in self.outcomes if (o.method, o.n_bits) == (method, n_bits)]
        return found[0] if found else None

    def to_json(self) -> str:
        """Return every figure as JSON; the same comparison gives the same text."""
        split = self.dataset.split
        parts = ("query", "database", "train", "validation")
        return json.dumps(
            {
                "settings": dict(self.settings),
                "versions": dict(self.versions),
                "images": {part: len(getattr(split, part)) for part in parts},
                "skipped": list(self.skipped),
                "outcomes": [outcome.values() for outcome in self.outcomes],
            },
            indent=2,
        )
