"""A table of results as Markdown: MAP beside the published one, tests of the reference against
each method, and the rank of the reference in words."""

from statistics import fmean

from orbithash.experiments.tables.results import Cell, Column, Results, Standing
from orbithash.experiments.tables.spec import TableRow
from orbithash.experiments.tables.statistics import SIGNIFICANT, PairedTest

EMPTY = "–"
HOW_RANKED = (
    "MAP by Hamming distance → MAP by asymmetric distance (the embeddings of the queries against "
    "the same codes), mean over seeds. Below it: their difference ± standard error over seeds."
)

HOW_LOOK = (
    "Of the ten database images nearest by features, the share among the ten nearest by code: by "
    "Hamming distance → by asymmetric distance, mean over seeds. Below it: the number of distinct "
    "codes in the database."
)
HOW_BESIDE = (
    "Means over seeds. The first four figures are of unseen in unseen: MAP by Hamming and by "
    "asymmetric distance, Recall@1 and MAP@R. The next three are the MAP of other queries and "
    "databases, by Hamming distance. Look and distinct codes are those of all queries and the "
    "whole database."
)
BESIDE_COLUMNS = {
    "recall_at_1": "Recall@1",
    "map_at_r": "MAP@R",
    "seen in seen": "seen in seen",
    "seen in all": "seen in all",
    "unseen in all": "unseen in all",
    "look": "look",
    "look_asymmetric": "look, asymmetric",
    "distinct_codes": "distinct codes",
}


def to_markdown(results: Results) -> str:
    """Return the whole of table.md."""
    reference = results.display_name(results.table.reference)
    parts = [f"# {results.table.title}", how_to_read(results), map_table(results)]
    if results.halves:
        parts += ["## Other scores", HOW_BESIDE]
        for column in results.columns:
            parts += [f"### {column_name(results, column)}", beside_table(results, column)]
    elif has_look(results):
        parts += ["## Look and distinct codes", HOW_LOOK, look_table(results)]
    if has_asymmetric(results):
        parts += ["## Hamming and asymmetric ranking", HOW_RANKED, asymmetric_table(results)]
    if len(results.seeds) > 1:
        parts += [
            f"## {reference} against each method",
            how_tested(results),
            test_table(results),
        ]
    parts += [
        f"## Where {reference} stands",
        standing_summary(results),
        "\n".join(f"- {line}" for line in standing_lines(results)),
    ]
    if results.missing:
        parts += ["## Missing runs", "\n".join(f"- {run}" for run in results.missing)]
    return "\n\n".join(parts) + "\n"


def how_to_read(results: Results) -> str:
    """Explain the figures of `map_table`."""
    n = len(results.seeds)
    seeds = f"mean ± standard deviation over {n} seeds" if n > 1 else "one seed"
    text = f"Expected MAP over the order of ties, {seeds}. The highest of each column is bold."
    if results.halves:
        text += (
            " Half of the classes did not train: queries of these classes are searched in the "
            "database images of these classes (unseen in unseen). Fixed halves: the second half of "
            "the classes, in their order. Random halves: another one for each seed."
        )
    if floats := [row.display_name for row in results.table.rows if not row.is_ranked]:
        text += f" {', '.join(floats)}: centred cosine of floats, not of codes, and not ranked."
    trains = any(stage["settings"] for stages in results.stages.values() for stage in stages)
    if trains:
        text += f" {trained_parts(results)}"
    if any(cell.published_map is not None for cell in results.cells.values()):
        text += " The second line of a cell is the published MAP"
        if trains:
            text += " (in the paper, losses trained the whole network)"
        text += ", followed by the difference of ours."
    if not all(row.in_paper for row in results.table.rows):
        text += " Rows in italics are not in the paper."
    return text


def trained_parts(results: Results) -> str:
    """Say what the losses trained: heads, whole networks, or each on some of the sources."""
    whole = [source.display_name for source in results.sources if source.fine_tuning is not None]
    if not whole:
        return "Losses trained a head on fixed features."
    if len(whole) == len(results.sources):
        return "Losses trained the whole network on images."
    return (
        f"Losses trained the whole network on {', '.join(whole)}, and a head on fixed features on "
        "the other sources."
    )


def map_table(results: Results) -> str:
    """Return one row per method, with its MAP in every column."""
    rows = [header(results)]
    best = {column: results.best(column) for column in results.columns}
    for row in results.table.rows:
        cells = [row_title(row)]
        for column in results.columns:
            cell = results.cells.get((row.name, column))
            is_best = best[column] == row.name
            cells.append(
                map_cell(cell, best=is_best, n_seeds=len(results.seeds)) if cell else EMPTY
            )
        rows.append(cells)
    return as_markdown_table(rows)


def has_asymmetric(results: Results) -> bool:
    return any(cell.asymmetric_maps for cell in results.cells.values())


def asymmetric_table(results: Results) -> str:
    """Return one row per method, with both rankings in every column."""
    rows = [header(results)]
    for row in results.table.rows:
        found = (results.cells.get((row.name, column)) for column in results.columns)
        rows.append([row_title(row), *("<br>".join(asymmetric_lines(cell)) for cell in found)])
    return as_markdown_table(rows)


def asymmetric_lines(cell: Cell | None) -> list[str]:
    """Return both MAPs over the seeds that have both, and their difference with several seeds."""
    if cell is None or not cell.asymmetric_maps:
        return [EMPTY]
    hamming = fmean(cell.maps[seed] for seed in cell.asymmetric_maps)
    lines = [f"{hamming:.4f} → {fmean(cell.asymmetric_maps.values()):.4f}"]
    if gain := cell.asymmetric_gain:
        lines.append(f"{signed(gain.difference)} ± {gain.standard_error:.4f}")
    return lines


def has_look(results: Results) -> bool:
    return any(cell.mean_of("look") is not None for cell in results.cells.values())


def look_table(results: Results) -> str:
    """Return one row per method, with its look and its distinct codes in every column."""
    rows = [header(results)]
    for row in results.table.rows:
        found = (results.cells.get((row.name, column)) for column in results.columns)
        rows.append([row_title(row), *("<br>".join(look_lines(cell)) for cell in found)])
    return as_markdown_table(rows)


def look_lines(cell: Cell | None) -> list[str]:
    """Return the look by both rankings, and the number of distinct codes, where known."""
    look = cell.mean_of("look") if cell else None
    if cell is None or look is None:
        return [EMPTY]
    asymmetric, distinct = cell.mean_of("look_asymmetric"), cell.mean_of("distinct_codes")
    lines = [f"{look:.1%}" if asymmetric is None else f"{look:.1%} → {asymmetric:.1%}"]
    return lines if distinct is None else [*lines, f"{distinct:,.0f} codes"]


def beside_table(results: Results, column: Column) -> str:
    """Return one row per method, with all of its scores in one column of the results."""
    rows = [beside_header()]
    for row in results.table.rows:
        cell = results.cells.get((row.name, column))
        rows.append([row_title(row), *beside_figures(cell)])
    return as_markdown_table(rows)


def beside_header() -> list[str]:
    return ["method", "unseen in unseen", "asymmetric", *BESIDE_COLUMNS.values()]


def beside_figures(cell: Cell | None) -> list[str]:
    """Return the figures of a row of `beside_table`."""
    if cell is None:
        return [EMPTY] * (2 + len(BESIDE_COLUMNS))
    asymmetric = fmean(cell.asymmetric_maps.values()) if cell.asymmetric_maps else None
    return [
        f"{cell.map.mean:.4f}",
        EMPTY if asymmetric is None else f"{asymmetric:.4f}",
        *(beside_figure(name, cell.mean_of(name)) for name in BESIDE_COLUMNS),
    ]


def beside_figure(name: str, value: float | None) -> str:
    """Format a figure: shares of looks in percent, numbers of codes whole, all others as MAP.

    >>> beside_figure("look", 0.421), beside_figure("distinct_codes", 4760.0)
    ('42.1%', '4,760')
    """
    if value is None:
        return EMPTY
    if name == "distinct_codes":
        return f"{value:,.0f}"
    return f"{value:.1%}" if name.startswith("look") else f"{value:.4f}"


def how_tested(results: Results) -> str:
    """Explain the figures of `test_table`."""
    reference = results.display_name(results.table.reference)
    return (
        f"{reference} minus the method: mean of the paired differences over seeds ± standard "
        "error, and p of a two-sided paired t-test, Holm-corrected for all methods of the column. "
        f"Bold: p < {SIGNIFICANT}. The test covers the randomness of training"
        f"{', and in random halves that of the classes' if results.halves else ''}, not the "
        "choice of queries."
    )


def test_table(results: Results) -> str:
    """Return one row per method, with the reference's difference and p in every column."""
    rows = [header(results)]
    for row in results.table.rows:
        if row.name == results.table.reference or not row.is_ranked:
            continue
        cells = [row_title(row)]
        for column in results.columns:
            cell = results.cells.get((row.name, column))
            if cell and cell.reference_test and cell.p_holm is not None:
                cells.append(test_cell(cell.reference_test, cell.p_holm))
            else:
                cells.append(EMPTY)
        rows.append(cells)
    return as_markdown_table(rows)


def standing_summary(results: Results) -> str:
    """Count the columns in which the reference is first, or near, among the paper's rows."""
    reference = results.display_name(results.table.reference)
    paper = has_paper_rows(results)
    found = (results.standing(column, in_paper_only=paper) for column in results.columns)
    standings = [standing for standing in found if standing]
    first = sum(standing.is_first for standing in standings)
    clearly = sum(standing.is_first and standing.all_beyond_noise for standing in standings)
    near = sum(not standing.is_first and standing.within_one_error for standing in standings)
    text = "Among the paper's rows, " if paper else ""
    text += f"{reference} is first in {first} of {len(results.columns)} columns"
    if len(results.seeds) > 1:
        text += f" (in {clearly} beyond noise)"
        text += f" and within one standard error of the first in {near} more"
    text += "."
    if results.missing:
        text += (
            f" {len(results.missing)} runs are missing; rows with missing runs are not compared."
        )
    return text


def standing_lines(results: Results) -> list[str]:
    """Describe the rank of the reference, one line per column."""
    lines = []
    for column in results.columns:
        text = f"{column_name(results, column)}: "
        among_paper = results.standing(column, in_paper_only=has_paper_rows(results))
        text += describe_standing(results, among_paper)
        among_all = results.standing(column, in_paper_only=False)
        if among_paper and among_all and among_all.first != among_paper.first:
            text += f" Among all rows: {describe_standing(results, among_all)}"
        lines.append(text)
    return lines


def has_paper_rows(results: Results) -> bool:
    """Whether the paper has several of the rows, so that they can be compared.

    It holds out no classes.
    """
    return not results.halves and sum(row.in_paper for row in results.table.rows) > 1


def describe_standing(results: Results, standing: Standing | None) -> str:
    if standing is None:
        return "nothing to compare."
    text = describe_difference(results.display_name(results.table.reference), standing)
    if standing.left_out:
        text += f" Not compared, because runs are missing: {', '.join(standing.left_out)}."
    return text


def describe_difference(reference: str, standing: Standing) -> str:
    if standing.is_first:
        ahead = f"{reference} is first, {standing.ahead:.4f} ahead of {standing.next}"
        if standing.p is None:
            return f"{ahead}; one seed is not enough for a test."
        noise = "" if standing.next_beyond_noise else ", within noise"
        return f"{ahead} ({format_p(standing.p)}{noise})."
    behind = f"{reference} is {standing.behind:.4f} behind {standing.first}"
    if standing.standard_error is None:
        return f"{behind}; one seed is not enough for a test."
    error = f"one standard error of its mean ({standing.standard_error:.4f})"
    return f"{behind}, {'within' if standing.within_one_error else 'beyond'} {error}."


def header(results: Results) -> list[str]:
    return ["method", *(column_name(results, column) for column in results.columns)]


def column_name(results: Results, column: Column) -> str:
    source, n_bits = column
    return f"{results.source(source).display_name}, {n_bits} bits"


def row_title(row: TableRow) -> str:
    return row.display_name if row.in_paper else f"*{row.display_name}*"


def map_cell(cell: Cell, *, best: bool, n_seeds: int) -> str:
    mean = f"{cell.map.mean:.4f}"
    text = f"**{mean}**" if best else mean
    if cell.map.deviation is not None:
        text += f" ± {cell.map.deviation:.4f}"
    if len(cell.maps) < n_seeds:
        text += f" ({len(cell.maps)} of {n_seeds} seeds)"
    if cell.published_map is not None and cell.published_difference is not None:
        text += f"<br>{cell.published_map:.4f} ({signed(cell.published_difference)})"
    return text


def test_cell(test: PairedTest, p: float) -> str:
    difference = signed(test.difference)
    text = f"**{difference}**" if p < SIGNIFICANT else difference
    return f"{text} ± {test.standard_error:.4f}<br>{format_p(p)}"


def format_p(p: float) -> str:
    """Format a p-value.

    >>> format_p(0.0123), format_p(0.0000123)
    ('p = 0.012', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def signed(number: float) -> str:
    """Format a number with its sign and a true minus.

    >>> signed(-0.01234)
    '−0.0123'
    """
    return f"{number:+.4f}".replace("-", "−")


def as_markdown_table(rows: list[list[str]]) -> str:
    head, *body = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body))
