"""`orbithash evaluate`: how good an encoder's codes are, or any other codes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orbithash.cli.options import Device, cell_text, print_unreadable, visible
from orbithash.errors import InputError
from orbithash.files import output_folder

if TYPE_CHECKING:
    from orbithash.data.codes_file import LabelledCodes
    from orbithash.encoders import Encoded, RunRecord
    from orbithash.evaluation import Scores
    from orbithash.experiments.tables.sources import SourceData

SCORES, REPORT = "scores.json", "report.html"
PRECISION_RECALL, PRECISION_AT = "precision_recall.svg", "precision_at.svg"
UNREADABLE = "unreadable.txt"
CONTENTS = frozenset({SCORES, REPORT, PRECISION_RECALL, PRECISION_AT, UNREADABLE})

OF_ARRAYS = "Codes in .npy files"


def evaluate_command(
    scored: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|CODES",
            help="Folder that `train` wrote; or codes: an .npz that `encode` or any other program "
            "wrote, or an .npy of query codes.",
        ),
    ],
    against: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE|DATABASE",
            help="With RUN: images or features with labels. With an .npy: that of the database's "
            "codes.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report; by default only the table is shown.")
    ] = None,
    map_at: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Also MAP over the first N results, divided by min(N, relevant), and divided by "
            "the relevant ones found; may be repeated.",
        ),
    ] = None,
    ties: Annotated[
        str,
        typer.Option(
            help="Order of results at equal distance in MAP: expected (mean over all orders), "
            "optimistic, pessimistic, stable (database order), or argsort (numpy's default)."
        ),
    ] = "expected",
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier report.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the scores as JSON instead of a table.")
    ] = False,
    bits: Annotated[
        int | None, typer.Option(help="Bits of a code.", rich_help_panel=OF_ARRAYS)
    ] = None,
    query_labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Labels of the queries: an .npy, or a text with the labels of one item per line, "
            "separated by ;",
            rich_help_panel=OF_ARRAYS,
        ),
    ] = None,
    database_labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Labels of the database, alike.", rich_help_panel=OF_ARRAYS
        ),
    ] = None,
) -> None:
    """Score an encoder, or codes of any program; --out also writes where they fail.

    Example: orbithash evaluate runs/photos photos/ --out reports/photos

    Example: orbithash evaluate codes.npz --map-at 1000

    Example: orbithash evaluate query.npy database.npy --bits 64 --query-labels q.npy
    --database-labels d.npy

    Every query of the split is searched in the database of the split; without a split, each row is
    a query against all others. The table has up to three scores: MAP by class, look (whether codes
    keep which images look alike; not of bare codes), and of a run with --hold-out-classes the MAP
    of classes that were not trained on. Nested codes are scored at each of their lengths.
    Unreadable images are left out and listed in the report.
    """
    from orbithash.metrics.scoring import check_options

    check_options(ties)  # and not after minutes of encoding
    options = {"ties": ties, "map_at": tuple(map_at or ())}
    kind = "" if scored.is_dir() else scored.suffix.lower()
    arrays = {"--bits": bits, "--query-labels": query_labels, "--database-labels": database_labels}
    if kind != ".npy" and (given := [name for name, value in arrays.items() if value is not None]):
        raise InputError(f"{given[0]} is for codes in two .npy files, which {scored} is not")
    if kind == ".npz":
        if against is not None:
            raise InputError(
                f"got {scored} and {against}, but an .npz holds queries and database; give it alone"
            )
        score_file(scored, out, force, options, as_json)
    elif kind == ".npy":
        if against is None or bits is None or query_labels is None or database_labels is None:
            wanted = {"DATABASE": against} | arrays
            missing = [name for name, value in wanted.items() if value is None]
            raise InputError(
                f"{scored} needs {' and '.join(missing)} too; write: orbithash evaluate QUERY.npy "
                "DATABASE.npy --bits N --query-labels FILE --database-labels FILE"
            )
        score_arrays(
            (scored, Path(against), query_labels, database_labels),
            bits,
            out,
            force,
            options,
            as_json,
        )
    elif against is None:
        raise InputError(
            f"got {scored} alone; write: orbithash evaluate RUN SOURCE, or give codes in an .npz"
        )
    else:
        score_run(scored, against, device, out, force, options, as_json)


def score_run(
    run: Path,
    source: str,
    device: str,
    out: Path | None,
    force: bool,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    console = Console(stderr=as_json)
    with report_folder(out, force) as folder:
        from orbithash import load  # --help must not wait for torch
        from orbithash.data import ImageFiles, open_source
        from orbithash.encoders import read_record
        from orbithash.encoders.encoding import write_unreadable
        from orbithash.encoders.progress import progress_bar
        from orbithash.encoders.runs.run_folder import trained_queries
        from orbithash.evaluation import REPORTED, encode_split, evaluate_rows, held_out_classes
        from orbithash.experiments.report import score_table

        encoder = load(run, device=device)
        record = encoder.training.record if encoder.training else read_record(run)
        data = open_source(source)
        trained = trained_queries(run, data) if isinstance(data, ImageFiles) else []
        notes = []
        if trained:
            notes.append(trained_warning(run, record.init, trained, len(data.split.query)))
            print(visible(f"orbithash: {notes[0]}"), file=sys.stderr)
        with progress_bar(console) as report:
            encoded = encode_split(encoder, data, progress=report, keep_features=True)
        unseen = held_out_classes(encoder)
        scores = evaluate_rows(
            encoded, data, prefixes=encoder.nested, unseen=unseen, **REPORTED, **options
        )
        if folder:
            write_unreadable(encoded.unreadable, folder / UNREADABLE)
            notes += left_out(scores, len(encoded.unreadable))
            write_report(folder, scores, encoded, data, record, str(run), source, notes)
    if encoded.unreadable and not out:
        console.print(f"Left out {len(encoded.unreadable)} images that cannot be read.")
    if as_json:
        print(scores.to_json())
        return
    if scores.prefixes:
        console.print(score_table.as_table_of_lengths(cell_text(record.method), scores))
    console.print(score_table.as_table(cell_text(record.method), scores))
    if scores.transfer:
        console.print(score_table.as_table_of_transfer(scores, record.held_out_classes))
    if out:
        print_unreadable(console, len(encoded.unreadable), out / UNREADABLE)
        print_places(console, out)


def score_file(
    file: Path, out: Path | None, force: bool, options: dict[str, Any], as_json: bool
) -> None:
    from orbithash.data.codes_file import read_codes

    score_codes(read_codes(file), str(file), file, out, force, options, as_json)


def score_arrays(
    files: tuple[Path, Path, Path, Path],
    n_bits: int,
    out: Path | None,
    force: bool,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from orbithash.data.codes_file import read_query_and_database

    stored = read_query_and_database(*files, n_bits=n_bits)
    score_codes(stored, f"{files[0]} in {files[1]}", files[0], out, force, options, as_json)


def score_codes(
    stored: "LabelledCodes",
    name: str,
    file: Path,
    out: Path | None,
    force: bool,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from orbithash.evaluation import REPORTED, evaluate_rows
    from orbithash.experiments.report import score_table

    console = Console()
    with report_folder(out, force) as folder:
        scores = evaluate_rows(stored, stored, **REPORTED, **options)
        if folder:
            notes = left_out(scores, 0)
            write_report(folder, scores, stored, stored, None, name, str(file), notes)
    if as_json:
        print(scores.to_json())
        return
    console.print(score_table.as_table(name, scores))
    if out:
        print_places(console, out)


@contextmanager
def report_folder(out: Path | None, force: bool) -> Iterator[Path | None]:
    """Yield the folder to write the report into, or None without one."""
    if out is None:
        yield None
        return
    with output_folder(out, contents=CONTENTS, force=force) as folder:
        yield folder


def write_report(
    folder: Path,
    scores: "Scores",
    encoded: "Encoded | LabelledCodes",
    data: "SourceData | LabelledCodes",
    record: "RunRecord | None",
    run: str,
    source: str,
    notes: list[str],
) -> None:
    """Write the scores as JSON, pictures and a page."""
    from orbithash.experiments.report.evaluation_report import write_evaluation_report
    from orbithash.experiments.report.figure import (
        precision_at_figure,
        precision_recall_figure,
        score_curves,
    )

    (folder / SCORES).write_text(scores.to_json() + "\n", encoding="utf-8")
    by_radius, by_number = score_curves(record.method if record else "codes", scores)
    for name, figure, curve in (
        (PRECISION_RECALL, precision_recall_figure, by_radius),
        (PRECISION_AT, precision_at_figure, by_number),
    ):
        (folder / name).write_text(figure([curve], n_bits=scores.n_bits), encoding="utf-8")
    write_evaluation_report(
        folder / REPORT,
        scores,
        encoded,
        data,
        record,
        run=run,
        source=source,
        notes=notes,
    )


def trained_warning(run: Path, init: str | None, trained: list[str], n_queries: int) -> str:
    runs = f"{run}, or {init} where it started," if init else f"{run}"
    advice = "score other images" if init else "give the run's own split.csv as SOURCE"
    return (
        f"{runs} was trained on {len(trained)} of the {n_queries} queries, such as {trained[0]}: "
        f"these scores are too good; {advice}"
    )


def left_out(scores: "Scores", n_unreadable: int) -> list[str]:
    """Say what was not scored, in lines for the report."""
    lines = []
    if n_unreadable:
        lines.append(f"{n_unreadable} images cannot be read and were left out: see {UNREADABLE}.")
    if scores.queries_without_relevant:
        lines.append(
            f"{scores.queries_without_relevant} of the {scores.queries} queries share no label "
            "with the database; they are left out of all scores."
        )
    return lines


def print_places(console: Console, out: Path) -> None:
    console.print("Scores and pictures:", style="bold")
    print(f"  {out}")
    console.print("Classes, confusions and the worst queries, in a browser:", style="bold")
    print(f"  open {out / REPORT}")
