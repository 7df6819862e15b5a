"""The scores of a set of codes, and their JSON."""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from orbithash.errors import InputError


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Mean precision and recall within each Hamming radius 0 … n_bits.

    Precision is NaN where the balls of all queries are empty.
    """

    precision: Float[np.ndarray, " radii"]
    recall: Float[np.ndarray, " radii"]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PrecisionRecall)
            and np.array_equal(self.precision, other.precision, equal_nan=True)
            and np.array_equal(self.recall, other.recall, equal_nan=True)
        )


@dataclass(frozen=True)
class Scores:
    """Means over the queries that have relevant items in the database."""

    map: float  # mean average precision, ties ordered as `ties` says
    map_bounds: tuple[float, float]  # lowest and highest over all orders of the ties
    ndcg: float  # mean over all orders of the ties, in every mode
    precision_recall: PrecisionRecall
    precision_at: dict[int, float]  # of the first N, mean over all orders of the ties
    map_at: dict[int, float]  # MAP@N, divided by min(N, relevant items)
    map_at_found: dict[int, float]  # MAP@N, divided by the relevant items found; stable order
    ties: str
    n_bits: int
    queries: int
    queries_without_relevant: int  # left out of every mean
    database: int
    # By class name, or by number if classes have no names: over the queries with this label.
    map_by_class: dict[str, float] = field(default_factory=dict)
    # Of nested codes: the scores of the first bits alone, by their number.
    prefixes: dict[int, "Scores"] = field(default_factory=dict)
    # One per query, NaN for those without relevant items; not in the JSON.
    average_precision: Float[np.ndarray, " n"] = field(
        default_factory=lambda: np.empty(0), compare=False, repr=False
    )

    def to_json(self) -> str:
        """Return JSON that `from_json` reads; NaN is written as null."""
        return json.dumps(self.values(), indent=2, allow_nan=False)

    def values(self) -> dict[str, Any]:
        """Return the content of the JSON."""
        values = asdict(replace(self, prefixes={}))
        del values["average_precision"], values["prefixes"]
        values["precision_recall"] = {
            name: [None if np.isnan(value) else value for value in array.tolist()]
            for name, array in values["precision_recall"].items()
        }
        if self.prefixes:
            values["prefixes"] = {str(n): scores.values() for n, scores in self.prefixes.items()}
        return values

    @staticmethod
    def from_json(text: str) -> "Scores":
        """Read scores that `to_json` wrote."""
        try:
            return read_scores(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"got text that does not hold scores ({error!r}); pass the output of Scores.to_json"
            ) from error


def read_scores(values: dict[str, Any]) -> Scores:
    """Convert the content of the JSON."""
    names = [field.name for field in fields(Scores) if field.compare]
    return Scores(**{name: read_field(name, values) for name in names})


def read_field(name: str, values: dict[str, Any]) -> Any:
    """Convert a field from JSON, which has no tuples, arrays, NaN or integer keys."""
    if name == "map_by_class":  # missing in files of earlier versions
        return {str(label): float(score) for label, score in values.get(name, {}).items()}
    if name == "prefixes":  # only of nested codes
        return {int(n): read_scores(scores) for n, scores in values.get(name, {}).items()}
    value = values[name]
    match name:
        case "map_bounds":
            lowest, highest = value
            return (float(lowest), float(highest))
        case "precision_recall":
            # dtype float turns None into NaN.
            return PrecisionRecall(
                precision=np.array(value["precision"], dtype=float),
                recall=np.array(value["recall"], dtype=float),
            )
        case "precision_at" | "map_at" | "map_at_found":
            return {int(cutoff): float(score) for cutoff, score in value.items()}
        case _:
            return value
