"""Example queries with the nearest images that each method returns, and their thumbnails."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from PIL import Image, ImageOps

from orbithash.data import ImageFiles
from orbithash.data.classes import unseen_rows
from orbithash.data.codes_file import LabelledCodes
from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError
from orbithash.experiments.report.html import data_uri
from orbithash.experiments.tables.plan import PlannedRun
from orbithash.experiments.tables.results import Results
from orbithash.experiments.tables.run import CODES, run_folder
from orbithash.experiments.tables.sources import (
    SourceData,
    TableSource,
    label_text,
    open_source_data,
)
from orbithash.index import ENGINES
from orbithash.relevance import related

N_QUERIES, N_HITS = 4, 8  # queries per source, and images per query


@dataclass(frozen=True)
class ExampleHit:
    """One image that a search returned."""

    row: int
    label: str
    related: bool
    distance: int


@dataclass(frozen=True)
class MethodHits:
    """The images that one method returned for a query, nearest first."""

    method: str  # display name
    hits: tuple[ExampleHit, ...]


@dataclass(frozen=True)
class ExampleQuery:
    row: int
    label: str
    methods: tuple[MethodHits, ...]


@dataclass(frozen=True)
class SourceExamples:
    """The example queries of one source at one code length."""

    source: str  # display name
    n_bits: int
    queries: tuple[ExampleQuery, ...]
    thumbnails: Mapping[int, str]  # row → data URI; empty if the images are not available


def find_examples(results: Results, runs: Sequence[PlannedRun], out: Path) -> list[SourceExamples]:
    """Search with the first run of every row, at the table's greatest code length."""
    n_bits = max(n_bits for _, n_bits in results.columns)
    first: dict[tuple[str, str], Path] = {}
    for run in runs:
        folder = run_folder(run, out)
        # Where networks are trained on images, hashers have the rows of features, which differ
        # if an image could not be read.
        comparable = run.is_fine_tuned == (run.source.fine_tuning is not None)
        has_codes = folder.is_dir() and not run.is_floats
        if run.n_bits == n_bits and comparable and has_codes:
            first.setdefault((run.source.name, run.row), folder)
    return [
        source_examples(
            source,
            n_bits,
            {
                row.display_name: first[source.name, row.name]
                for row in results.table.rows
                if (source.name, row.name) in first
            },
            held_out=source.held_out(results.seeds[0]),
        )
        for source in results.sources
    ]


def source_examples(
    source: TableSource, n_bits: int, folders: Mapping[str, Path], *, held_out: Sequence[str]
) -> SourceExamples:
    """Run the same queries with the codes of each folder, given by display name.

    If classes were held out, the queries are of these.
    """
    data = open_source_data(source, fine_tuned=source.fine_tuning is not None)
    queries = data.split.query
    if held_out:
        queries = queries[unseen_rows(data, held_out)[queries]]
    # Spread evenly over all queries, so that none is picked by hand.
    total = len(queries)
    positions = np.linspace(0, total - 1, min(N_QUERIES, total)).round().astype(np.int64)
    query_rows = queries[np.unique(positions)]
    methods: list[list[MethodHits]] = [[] for _ in query_rows]
    for display_name, folder in folders.items():
        for position, hits in enumerate(search_codes(folder / CODES, n_bits, data, query_rows)):
            methods[position].append(MethodHits(display_name, hits))
    examples = tuple(
        ExampleQuery(row, label_text(data, row), tuple(query_methods))
        for row, query_methods in zip(query_rows.tolist(), methods, strict=True)
    )
    rows = {query.row for query in examples} | {
        hit.row for query in examples for method in query.methods for hit in method.hits
    }
    beside_features = source.file.parent if source.file else None
    places = [folder for folder in (source.images, beside_features, Path()) if folder is not None]
    thumbnails = thumbnail_uris(data, rows, places)
    return SourceExamples(source.display_name, n_bits, examples, thumbnails)


def search_codes(
    file: Path, n_bits: int, data: SourceData, query_rows: Int64[np.ndarray, " queries"]
) -> list[tuple[ExampleHit, ...]]:
    """Search the database codes in a run's file for the nearest to each of the query rows."""
    with np.load(file, allow_pickle=False) as stored:
        rows, codes = stored["ids"], stored["codes"]
    engine = ENGINES["exact"](n_bits)
    in_database = np.isin(rows, data.split.database)
    engine.add(rows[in_database], codes[in_database])
    results = []
    for query_row in query_rows:
        nearest = engine.search(codes[rows == query_row], N_HITS)  # empty if it was unreadable
        ids = nearest.ids.ravel()
        is_related = related(data.labels[[query_row]], data.labels[ids])[0]
        items = zip(ids.tolist(), is_related.tolist(), nearest.distances.ravel(), strict=True)
        results.append(
            tuple(
                ExampleHit(row, label_text(data, row), row_related, int(distance))
                for row, row_related, distance in items
            )
        )
    return results


SIDE = 72  # pixels; a report holds some hundreds of thumbnails, of about 2 kB each


def thumbnail(file: Path | None, side: int = SIDE) -> Image.Image | None:
    """Shrink the centre of an image; None if it is missing or cannot be read."""
    if file is None:
        return None
    try:
        return ImageOps.fit(read_rgb(file, at_least=side), (side, side))
    except UnreadableImageError:
        return None


def find_image(
    data: SourceData | LabelledCodes, row: int, folders: Sequence[Path] = ()
) -> Path | None:
    """Return the file of a row; paths in a file of arrays are relative to one of the folders."""
    if isinstance(data, ImageFiles):
        return data.file(row)
    if data.paths is None:
        return None
    candidates = (folder / data.paths[row] for folder in folders)
    return next((file for file in candidates if file.is_file()), None)


def image_folders(source: str) -> tuple[Path, ...]:
    """Return the folders that paths in a features file may be relative to."""
    return (Path(source).parent, Path())


def thumbnail_uris(
    data: SourceData | LabelledCodes,
    rows: Iterable[int],
    folders: Sequence[Path],
    *,
    side: int = SIDE,
) -> dict[int, str]:
    """Return thumbnails as data URIs by row, without those of missing or unreadable images."""
    uris = {}
    for row in sorted(rows):
        image = thumbnail(find_image(data, row, folders), side)
        if image is not None:
            content = io.BytesIO()
            image.save(content, format="JPEG", quality=60)
            uris[row] = data_uri(content.getvalue(), "image/jpeg")
    return uris
