"""What a comparison of methods found, before it becomes a table, a picture or a page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from orbithash.data import LabelledImages
from orbithash.evaluation import Scores
from orbithash.experiments.choosing import Trial
from orbithash.experiments.tables.statistics import mean_bounds
from orbithash.index import Neighbours


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method at one code length, run from several seeds."""

    method: str
    kind: Literal["deep", "shallow"]
    n_bits: int
    runs: tuple[Scores, ...]
    neighbours: Neighbours  # of the first run, for every query
    trials: tuple[Trial, ...] = ()  # by which a deep method's settings were chosen

    @property
    def map(self) -> float:
        """Mean over the runs."""
        return float(np.mean([scores.map for scores in self.runs]))

    @property
    def map_spread(self) -> float:
        """Standard deviation over the runs: differences below it say little."""
        return float(np.std([scores.map for scores in self.runs], ddof=min(1, len(self.runs) - 1)))

    @property
    def map_bounds(self) -> tuple[float, float]:
        return mean_bounds(self.runs)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods compared on one dataset, and all that is needed to compare them again."""

    dataset: LabelledImages
    outcomes: tuple[Outcome, ...]
    skipped: tuple[str, ...]  # one line each: which method could not be run, and why
    settings: Mapping[str, object]
    versions: Mapping[str, str]

    def best(self, n_bits: int) -> Outcome:
        return max((o for o in self.outcomes if o.n_bits == n_bits), key=lambda o: o.map)

    def code_lengths(self) -> list[int]:
        return sorted({outcome.n_bits for outcome in self.outcomes})

    def methods(self) -> list[str]:
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    def of(self, method: str, n_bits: int) -> Outcome | None:
        found = [o for o in self.outcomes if (o.method, o.n_bits) == (method, n_bits)]
        return found[0] if found else None

    def to_json(self) -> str:
        """Every figure of the comparison; the same comparison gives the same text."""
        split = self.dataset.split
        return json.dumps(
            {
                "settings": dict(self.settings),
                "versions": dict(self.versions),
                "images": {
                    "query": len(split.query),
                    "database": len(split.database),
                    "train": len(split.train),
                    "validation": len(split.validation),
                },
                "skipped": list(self.skipped),
                "outcomes": [_outcome_values(outcome) for outcome in self.outcomes],
            },
            indent=2,
        )


def _outcome_values(outcome: Outcome) -> dict[str, object]:
    return {
        "method": outcome.method,
        "kind": outcome.kind,
        "n_bits": outcome.n_bits,
        "map": outcome.map,
        "map_spread": outcome.map_spread,
        "map_bounds": outcome.map_bounds,
        "trials": [{**asdict(trial.settings), "map": trial.map} for trial in outcome.trials],
        "runs": [json.loads(scores.to_json()) for scores in outcome.runs],
    }
