"""Example queries with the results of each method, and small pictures of them."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from PIL import Image, ImageOps

from orbithash.data import ImageFiles, LabelledFeatures
from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError
from orbithash.experiments.report.html import data_uri
from orbithash.experiments.tables.plan import Run
from orbithash.experiments.tables.results import Results
from orbithash.experiments.tables.run import CODES, Data, open_data, run_folder
from orbithash.experiments.tables.sources import Source
from orbithash.index import ENGINES
from orbithash.relevance import related

SIDE = 72  # pixels; a report holds some hundreds, of about 2 kB each


def thumbnails_of(
    source: Source, data: LabelledFeatures | ImageFiles, rows: Iterable[int]
) -> dict[int, str]:
    """Data URIs by row; rows whose image is not found or cannot be read have none."""
    beside = source.file.parent if source.file else None
    places = [place for place in (source.images, beside, Path()) if place is not None]
    result = {}
    for row in sorted(rows):
        image = thumbnail(find_image(data, row, places))
        if image is not None:
            content = io.BytesIO()
            image.save(content, format="JPEG", quality=60)
            result[row] = data_uri(content.getvalue(), "image/jpeg")
    return result


def thumbnail(file: Path | None) -> Image.Image | None:
    """The middle of an image, small; None if it is not there or cannot be read."""
    if file is None:
        return None
    try:
        return ImageOps.fit(read_rgb(file, at_least=SIDE), (SIDE, SIDE))
    except UnreadableImageError:
        return None


def find_image(
    data: LabelledFeatures | ImageFiles, row: int, places: Sequence[Path] = ()
) -> Path | None:
    """The file of a row; the paths of features are looked for in these places."""
    if isinstance(data, ImageFiles):
        return data.file(row)
    if data.paths is None:
        return None
    candidates = (place / data.paths[row] for place in places)
    return next((file for file in candidates if file.is_file()), None)


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
        # Where networks are trained on images, hashers have the rows of features, which are
        # others if an image could not be read.
        comparable = run.is_fine_tuned == (run.source.fine_tuning is not None)
        if run.n_bits == n_bits and comparable and folder.is_dir():
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
    data = open_data(source, fine_tuned=source.fine_tuning is not None)
    # Spread evenly over the queries: nobody picks them.
    among = len(data.split.query)
    places = np.unique(np.linspace(0, among - 1, min(QUERIES, among)).round().astype(np.int64))
    asking = data.split.query[places]
    answers: list[list[Answer]] = [[] for _ in asking]
    for shown, folder in folders.items():
        for place, found in enumerate(search(folder / CODES, n_bits, data, asking)):
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
    codes: Path, n_bits: int, data: Data, asking: Int64[np.ndarray, " queries"]
) -> list[tuple[Found, ...]]:
    """The nearest of the database to each of these rows, by the codes that a run kept."""
    with np.load(codes, allow_pickle=False) as kept:
        rows, packed = kept["ids"], kept["codes"]
    engine = ENGINES["exact"](n_bits)
    answering = np.isin(rows, data.split.database)
    engine.add(rows[answering], packed[answering])
    results = []
    for row in asking:
        nearest = engine.search(packed[rows == row], FOUND)  # of none, if it could not be read
        ids = nearest.ids.ravel()
        is_related = related(data.labels[[row]], data.labels[ids])[0]
        items = zip(ids.tolist(), is_related.tolist(), nearest.distances.ravel(), strict=True)
        results.append(
            tuple(
                Found(item, label_of(data, item), answers, int(distance))
                for item, answers, distance in items
            )
        )
    return results


def label_of(data: Data, row: int) -> str:
    """The names of what is on an image, or the numbers of its labels."""
    labels = data.labels[row]
    numbers = np.flatnonzero(labels) if data.labels.ndim == 2 else [labels]
    return ", ".join(data.classes[n] if data.classes else str(n) for n in numbers)
