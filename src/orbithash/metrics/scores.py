"""The scores of a set of codes, and their JSON."""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from orbithash.errors import InputError


def no_radii() -> Float[np.ndarray, " radii"]:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Mean precision and recall within each Hamming radius 0 … n_bits.

    A query's ball is empty where no item is within the radius of it. `precision` leaves empty balls
    out, and is NaN where all are empty; `precision_or_zero` counts them as 0.
    """

    precision: Float[np.ndarray, " radii"]
    recall: Float[np.ndarray, " radii"]
    # No values in scores of earlier versions.
    precision_or_zero: Float[np.ndarray, " radii_or_none"] = field(default_factory=no_radii)
    empty: Float[np.ndarray, " radii_or_none"] = field(default_factory=no_radii)  # share of queries

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrecisionRecall) and all(
            np.array_equal(getattr(self, each.name), getattr(other, each.name), equal_nan=True)
            for each in fields(self)
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
    # MAP@N, divided by the relevant items found; in stable order, or that of ties="argsort".
    map_at_found: dict[int, float]
    ties: str
    n_bits: int
    queries: int
    queries_without_relevant: int  # left out of every mean
    database: int
    map_asymmetric: float | None = None  # of embeddings of the queries against the same codes
    # By class name, or by number if classes have no names: over the queries with this label.
    map_by_class: dict[str, float] = field(default_factory=dict)
    # Share of queries with no relevant item among the first N, in the order of `map_at_found`; that
    # counts them as 0.
    nothing_found_at: dict[int, float] = field(default_factory=dict)
    # Only where they were asked for:
    map_at_r: float | None = None  # MAP@R, R being the number of the query's relevant items
    # Share of queries with a relevant item among the first N, mean over all orders of the ties.
    recall_at: dict[int, float] = field(default_factory=dict)
    # Of the ten database items nearest by a teacher's features, the share that is among the ten
    # nearest by code, and by asymmetric distance: the mean over all queries. None without features.
    look: float | None = None
    look_asymmetric: float | None = None
    distinct_codes: int | None = None  # in the database
    # Of a run that held out classes: the scores of queries of seen and of unseen classes, such as
    # "unseen in all".
    transfer: dict[str, "Scores"] = field(default_factory=dict)
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
        values = asdict(replace(self, prefixes={}, transfer={}))
        del values["average_precision"], values["prefixes"], values["transfer"]
        values["precision_recall"] = {
            name: [None if np.isnan(value) else value for value in array.tolist()]
            for name, array in values["precision_recall"].items()
        }
        if self.prefixes:
            values["prefixes"] = {str(n): scores.values() for n, scores in self.prefixes.items()}
        if self.transfer:
            values["transfer"] = {name: each.values() for name, each in self.transfer.items()}
        return values

    @staticmethod
    def from_json(text: str) -> "Scores":
        """Read scores that `to_json` wrote."""
        try:
            return read_scores(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"got text that does not hold scores ({error!r}); pass the output of Scores.to_json"
            ) from error


def read_scores(values: dict[str, Any]) -> Scores:
    """Convert the content of the JSON."""
    names = [field.name for field in fields(Scores) if field.compare]
    return Scores(**{name: read_field(name, values) for name in names})


def read_field(name: str, values: dict[str, Any]) -> Any:
    """Convert a field from JSON, which has no tuples, arrays, NaN or integer keys."""
    match name:
        case "map_by_class":  # missing in files of earlier versions, as are the next two
            return {str(label): float(score) for label, score in values.get(name, {}).items()}
        case "nothing_found_at" | "recall_at":
            return by_cutoff(values.get(name, {}))
        case "map_at_r" | "map_asymmetric" | "look" | "look_asymmetric":
            value = values.get(name)
            return None if value is None else float(value)
        case "distinct_codes":
            return values.get(name)
        case "transfer":  # only of a run that held out classes
            return {group: read_scores(scores) for group, scores in values.get(name, {}).items()}
        case "prefixes":  # only of nested codes
            return {int(n): read_scores(scores) for n, scores in values.get(name, {}).items()}
    value = values[name]
    match name:
        case "map_bounds":
            lowest, highest = value
            return (float(lowest), float(highest))
        case "precision_recall":
            # dtype float turns None into NaN.
            curves = ("precision", "recall", "precision_or_zero", "empty")
            arrays = {curve: np.array(value[curve], float) for curve in curves if curve in value}
            return PrecisionRecall(**arrays)
        case "precision_at" | "map_at" | "map_at_found":
            return by_cutoff(value)
        case _:
            return value


def by_cutoff(values: dict[str, Any]) -> dict[int, float]:
    return {int(cutoff): float(score) for cutoff, score in values.items()}
