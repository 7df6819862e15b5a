"""The demo's comparison as one HTML file: pictures are inside, nothing is loaded."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32
from PIL import Image

from orbithash.experiments.comparison import Comparison, Outcome
from orbithash.experiments.report.figure import Curve, precision_at_figure, precision_recall_figure
from orbithash.experiments.report.html import Picture, data_uri, picture, render
from orbithash.experiments.tables.statistics import mean_precision_at, mean_recall_precision

HARDEST = 4  # queries shown of those that the first method answers worst


@dataclass(frozen=True)
class Thumbnail:
    source: str  # data URI
    label: str
    related: bool
    distance: int


@dataclass(frozen=True)
class Row:
    """A query and what was found, nearest first."""

    source: str
    label: str
    found: tuple[Thumbnail, ...]


def write_report(file: Path, comparison: Comparison, *, seconds: float) -> None:
    """Write the page; it differs between runs of the same comparison only in the seconds."""
    file.write_text(render_report(comparison, seconds=seconds), encoding="utf-8")


def render_report(comparison: Comparison, *, seconds: float) -> str:
    longest = comparison.code_lengths()[-1]
    shown = [outcome for outcome in comparison.outcomes if outcome.n_bits == longest]
    first_of_each, hardest = chosen_queries(comparison, shown[0])
    return render(
        "demo.html",
        comparison=comparison,
        verdicts=[verdict(comparison, n_bits) for n_bits in comparison.code_lengths()],
        pictures=pictures(comparison),
        shown_bits=longest,
        retrieved=[(o.method, rows(comparison, o, first_of_each)) for o in shown],
        hardest=(shown[0].method, rows(comparison, shown[0], hardest)),
        seconds=seconds,
    )


def verdict(comparison: Comparison, n_bits: int) -> str:
    """Who is best, and best of the networks, in words that claim no more than the runs show."""
    ranked = sorted((o for o in comparison.outcomes if o.n_bits == n_bits), key=lambda o: -o.map)
    best = f"At {n_bits} bits {ranked[0].method} scores highest, {ranked[0].map:.3f}."
    networks = [outcome for outcome in ranked if outcome.kind == "deep"]
    if len(networks) < 2:
        return best
    first, second = networks[:2]
    ahead = first.map - second.map
    spread = float(np.hypot(first.map_spread, second.map_spread))
    judgement = "within" if ahead <= spread else "beyond"
    return (
        f"{best} Of the networks {first.method} is {ahead:.3f} ahead of {second.method}, "
        f"{judgement} the ±{spread:.3f} that runs differ by."
    )


def pictures(comparison: Comparison) -> list[Picture]:
    """Precision-recall and precision@N, at each code length."""
    drawn = []
    for n_bits in comparison.code_lengths():
        outcomes = [o for o in comparison.outcomes if o.n_bits == n_bits]
        strong = sum(outcome.kind == "deep" for outcome in outcomes)
        methods = ", ".join(outcome.method for outcome in outcomes)
        by_radius = [Curve(o.method, *mean_recall_precision(o.runs)) for o in outcomes]
        by_number = [Curve(o.method, *mean_precision_at(o.runs)) for o in outcomes]
        for svg, name in (
            (
                precision_recall_figure(by_radius, n_bits=n_bits, strong=strong),
                "Precision-recall curve",
            ),
            (precision_at_figure(by_number, n_bits=n_bits, strong=strong), "Precision at N"),
        ):
            drawn.append(picture(svg, f"{name} at {n_bits} bits of {methods}"))
    return drawn


def chosen_queries(comparison: Comparison, outcome: Outcome) -> tuple[list[int], list[int]]:
    """Positions of the first query of every class, and of those the outcome answers worst."""
    labels = comparison.dataset.labels[comparison.dataset.split.query]
    _, first_of_each = np.unique(labels, return_index=True)
    found = related_found(comparison, outcome).sum(axis=1)
    return first_of_each.tolist(), np.argsort(found, kind="stable")[:HARDEST].tolist()


def related_found(comparison: Comparison, outcome: Outcome) -> Bool[np.ndarray, "queries k"]:
    labels = comparison.dataset.labels
    asked = labels[comparison.dataset.split.query]
    related: np.ndarray = labels[outcome.neighbours.ids] == asked[:, None]
    return related


def rows(comparison: Comparison, outcome: Outcome, queries: Sequence[int]) -> list[Row]:
    """What the outcome's first run found for some of the queries."""
    dataset, neighbours = comparison.dataset, outcome.neighbours
    related = related_found(comparison, outcome)

    shown = [thumbnail(image.reshape(8, 8)) for image in dataset.features]
    assert dataset.classes is not None
    names = [dataset.classes[label] for label in dataset.labels]
    return [
        Row(
            source=shown[dataset.split.query[query]],
            label=names[dataset.split.query[query]],
            found=tuple(
                Thumbnail(shown[image], names[image], bool(is_related), int(distance))
                for image, is_related, distance in zip(
                    neighbours.ids[query], related[query], neighbours.distances[query], strict=True
                )
            ),
        )
        for query in queries
    ]


def thumbnail(image: Float32[np.ndarray, "height width"]) -> str:
    """A grey image with values in [0, 1] as dark ink on white paper."""
    file = io.BytesIO()
    Image.fromarray(np.uint8(255 * (1 - image))).save(file, format="PNG")
    return data_uri(file.getvalue(), "image/png")
