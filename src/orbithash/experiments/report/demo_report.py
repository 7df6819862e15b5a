"""The comparison of the demo as one HTML page."""

import inspect
import io
import re
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
from orbithash.hashers import HASHERS
from orbithash.losses import LOSSES

N_HARDEST = 4  # queries with the fewest related images found


@dataclass(frozen=True)
class MethodLine:
    """A method in one line, from its docstring."""

    summary: str
    paper: str  # empty if there is none


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
    longest = comparison.ranked(max_bits)
    first_of_each, hardest = example_queries(comparison, longest[0])
    return render_page(
        "demo.html",
        comparison=comparison,
        lines={method: method_line(method) for method in comparison.methods()},
        verdicts=[verdict(comparison, n_bits) for n_bits in comparison.code_lengths()],
        pictures=pictures(comparison),
        example_bits=max_bits,
        examples=[(o.method, demo_queries(comparison, o, first_of_each)) for o in longest],
        hardest=(longest[0].method, demo_queries(comparison, longest[0], hardest)),
        seconds=seconds,
    )


def method_line(method: str) -> MethodLine:
    """Return the first line of the method's docstring and the paragraph that names its paper."""
    entry: object = LOSSES.get(method) or HASHERS[method]
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(entry) or "").split("\n\n")]
    papers = [part for part in paragraphs[1:] if re.search(r'"[^"]+", .*\d{4}', part)]
    return MethodLine(paragraphs[0], papers[0] if papers else "")


def verdict(comparison: Comparison, n_bits: int) -> str:
    """Name the best method, and compare it with the best other network and shallow method."""
    best, *others = comparison.ranked(n_bits)
    sentences = [f"At {n_bits} bits, {best.method} has the highest MAP, {best.map:.3f}."]
    for kind, name in (("deep", "network"), ("shallow", "shallow method")):
        rival = next((outcome for outcome in others if outcome.kind == kind), None)
        if rival is None:
            continue
        spread = float(np.hypot(best.map_spread, rival.map_spread))
        judgement = "within" if best.map - rival.map <= spread else "beyond"
        which = f"the {'next' if best.kind == kind else 'best'} {name}"
        sentences.append(
            f"{rival.method}, {which}, has {rival.map:.3f}; the difference is {judgement} the "
            f"spread of the runs (±{spread:.3f})."
        )
    return " ".join(sentences)


def pictures(comparison: Comparison) -> list[Picture]:
    """Draw precision-recall and precision at N, for each code length."""
    drawn = []
    for n_bits in comparison.code_lengths():
        # Networks first, because the first lines are drawn thickest; in the order of the table.
        outcomes = [o for m in comparison.methods() if (o := comparison.of(m, n_bits)) is not None]
        outcomes.sort(key=lambda outcome: outcome.kind)
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
    assert dataset.classes is not None
    names = [dataset.classes[label] for label in dataset.labels]
    return [
        DemoQuery(
            source=png_uri(dataset.features[dataset.split.query[query]].reshape(8, 8)),
            label=names[dataset.split.query[query]],
            hits=tuple(
                DemoHit(
                    png_uri(dataset.features[image].reshape(8, 8)),
                    names[image],
                    bool(is_related),
                    int(distance),
                )
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
