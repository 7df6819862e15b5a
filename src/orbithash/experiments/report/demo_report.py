"""The comparison of the demo as one HTML page."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32
from PIL import Image

from orbithash.experiments.comparison import Comparison, Outcome
from orbithash.experiments.report.figure import Curve, precision_at_figure, precision_recall_figure
from orbithash.experiments.report.html import Picture, data_uri, render_page, svg_picture
from orbithash.experiments.tables.statistics import mean_precision_at, mean_recall_precision

N_HARDEST = 4  # queries with the fewest related images found


@dataclass(frozen=True)
class DemoHit:
    """One image that a search returned."""

    source: str  # data URI
    label: str
    related: bool
    distance: int


@dataclass(frozen=True)
class DemoQuery:
    """A query image and its hits, nearest first."""

    source: str  # data URI
    label: str
    hits: tuple[DemoHit, ...]


def write_report(file: Path, comparison: Comparison, *, seconds: float) -> None:
    """Write the page; only the seconds differ between runs of the same comparison."""
    file.write_text(render_demo_report(comparison, seconds=seconds), encoding="utf-8")


def render_demo_report(comparison: Comparison, *, seconds: float) -> str:
    max_bits = comparison.code_lengths()[-1]
    longest = [outcome for outcome in comparison.outcomes if outcome.n_bits == max_bits]
    first_of_each, hardest = example_queries(comparison, longest[0])
    return render_page(
        "demo.html",
        comparison=comparison,
        verdicts=[verdict(comparison, n_bits) for n_bits in comparison.code_lengths()],
        pictures=pictures(comparison),
        example_bits=max_bits,
        examples=[(o.method, demo_queries(comparison, o, first_of_each)) for o in longest],
        hardest=(longest[0].method, demo_queries(comparison, longest[0], hardest)),
        seconds=seconds,
    )


def verdict(comparison: Comparison, n_bits: int) -> str:
    """Name the best method, and the best network with its lead compared to the noise."""
    ranked = sorted((o for o in comparison.outcomes if o.n_bits == n_bits), key=lambda o: -o.map)
    best = f"At {n_bits} bits, {ranked[0].method} has the highest MAP, {ranked[0].map:.3f}."
    networks = [outcome for outcome in ranked if outcome.kind == "deep"]
    if len(networks) < 2:
        return best
    first, second = networks[:2]
    ahead = first.map - second.map
    spread = float(np.hypot(first.map_spread, second.map_spread))
    judgement = "within" if ahead <= spread else "beyond"
    return (
        f"{best} Among the networks, {first.method} is {ahead:.3f} ahead of {second.method}, "
        f"{judgement} the spread of the runs (±{spread:.3f})."
    )


def pictures(comparison: Comparison) -> list[Picture]:
    """Draw precision-recall and precision at N, for each code length."""
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
            drawn.append(svg_picture(svg, f"{name} at {n_bits} bits of {methods}"))
    return drawn


def example_queries(comparison: Comparison, outcome: Outcome) -> tuple[list[int], list[int]]:
    """Return positions of the first query of every class, and of those with the worst hits."""
    labels = comparison.dataset.labels[comparison.dataset.split.query]
    _, first_of_each = np.unique(labels, return_index=True)
    n_related = related_hits(comparison, outcome).sum(axis=1)
    return first_of_each.tolist(), np.argsort(n_related, kind="stable")[:N_HARDEST].tolist()


def related_hits(comparison: Comparison, outcome: Outcome) -> Bool[np.ndarray, "queries k"]:
    labels = comparison.dataset.labels
    query_labels = labels[comparison.dataset.split.query]
    related: np.ndarray = labels[outcome.neighbours.ids] == query_labels[:, None]
    return related


def demo_queries(
    comparison: Comparison, outcome: Outcome, queries: Sequence[int]
) -> list[DemoQuery]:
    """Return the hits of the outcome's first run for some of the queries."""
    dataset, neighbours = comparison.dataset, outcome.neighbours
    related = related_hits(comparison, outcome)
    uris = [png_uri(image.reshape(8, 8)) for image in dataset.features]
    assert dataset.classes is not None
    names = [dataset.classes[label] for label in dataset.labels]
    return [
        DemoQuery(
            source=uris[dataset.split.query[query]],
            label=names[dataset.split.query[query]],
            hits=tuple(
                DemoHit(uris[image], names[image], bool(is_related), int(distance))
                for image, is_related, distance in zip(
                    neighbours.ids[query], related[query], neighbours.distances[query], strict=True
                )
            ),
        )
        for query in queries
    ]


def png_uri(image: Float32[np.ndarray, "height width"]) -> str:
    """Return the data URI of a grey image with values in [0, 1], where 1 is black."""
    file = io.BytesIO()
    Image.fromarray(np.uint8(255 * (1 - image))).save(file, format="PNG")
    return data_uri(file.getvalue(), "image/png")
