"""Example queries with what each method finds for them, as a report shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from orbithash.data import ImageFiles, LabelledFeatures
from orbithash.encoders import FeatureEncoder, load
from orbithash.experiments.plan import Run
from orbithash.experiments.run import read_once, run_folder
from orbithash.experiments.sources import Source
from orbithash.experiments.table import Results
from orbithash.experiments.thumbnails import thumbnails_of
from orbithash.index import ENGINES
from orbithash.relevance import related

QUERIES, FOUND = 4, 8  # how many queries of a source are shown, and how many images for each


@dataclass(frozen=True)
class Found:
    """One image that a search returned."""

    row: int
    label: str
    related: bool
    distance: int


@dataclass(frozen=True)
class Answer:
    """What one method finds for a query, nearest first."""

    shown: str
    found: tuple[Found, ...]


@dataclass(frozen=True)
class Example:
    row: int
    label: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Examples:
    """The examples of one source at one code length."""

    source: str
    n_bits: int
    queries: tuple[Example, ...]
    thumbnails: Mapping[int, str]  # by row, as data URIs; empty if the images are not there


def find_examples(results: Results, runs: Sequence[Run], out: Path) -> list[Examples]:
    """Search with the first run of every row, at the table's greatest code length."""
    n_bits = max(n_bits for _, n_bits in results.columns)
    first: dict[tuple[str, str], Path] = {}
    for run in runs:
        folder = run_folder(run, out)
        if run.n_bits == n_bits and folder.is_dir():
            first.setdefault((run.source.name, run.row), folder)
    return [
        examples_of(
            source,
            n_bits,
            {
                line.shown: first[source.name, line.row.name]
                for line in results.table.lines
                if (source.name, line.row.name) in first
            },
        )
        for source in results.sources
    ]


def examples_of(source: Source, n_bits: int, folders: Mapping[str, Path]) -> Examples:
    """The same queries answered by the run in each of the folders."""
    data = read_once(source.file)
    # Spread evenly over the queries: nobody picks them.
    among = len(data.split.query)
    places = np.unique(np.linspace(0, among - 1, min(QUERIES, among)).round().astype(np.int64))
    asking = data.split.query[places]
    answers: list[list[Answer]] = [[] for _ in asking]
    for shown, folder in folders.items():
        encoder = load(folder)
        assert isinstance(encoder, FeatureEncoder)
        for place, found in enumerate(search(encoder, data, asking)):
            answers[place].append(Answer(shown, found))
    queries = tuple(
        Example(row, label_of(data, row), tuple(of_query))
        for row, of_query in zip(asking.tolist(), answers, strict=True)
    )
    shown_rows = {example.row for example in queries} | {
        found.row for example in queries for answer in example.answers for found in answer.found
    }
    return Examples(source.shown, n_bits, queries, thumbnails_of(source, data, shown_rows))


def search(
    encoder: FeatureEncoder, data: LabelledFeatures, asking: Int64[np.ndarray, " queries"]
) -> list[tuple[Found, ...]]:
    """The nearest of the database to each of these rows."""
    engine = ENGINES["exact"](encoder.n_bits)
    engine.add(data.split.database, encoder.encode(data.features[data.split.database]))
    neighbours = engine.search(encoder.encode(data.features[asking]), FOUND)
    results = []
    for row, ids, distances in zip(asking, neighbours.ids, neighbours.distances, strict=True):
        is_related = related(data.labels[[row]], data.labels[ids])[0]
        items = zip(ids.tolist(), is_related.tolist(), distances.tolist(), strict=True)
        results.append(
            tuple(
                Found(item, label_of(data, item), answers, distance)
                for item, answers, distance in items
            )
        )
    return results


def label_of(data: LabelledFeatures | ImageFiles, row: int) -> str:
    """The names of what is on an image, or the numbers of its labels."""
    labels = data.labels[row]
    numbers = np.flatnonzero(labels) if data.labels.ndim == 2 else [labels]
    return ", ".join(data.classes[n] if data.classes else str(n) for n in numbers)
