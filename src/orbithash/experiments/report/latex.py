"""A table of results as LaTeX: MAP with its deviation, the published MAP beneath, and a dagger
where the reference differs significantly."""

from itertools import groupby

from orbithash.experiments.tables.results import Cell, Results
from orbithash.experiments.tables.spec import TableRow
from orbithash.experiments.tables.statistics import SIGNIFICANT


def to_latex(results: Results) -> str:
    """Return a tabular to \\input into a paper; it needs the packages booktabs and makecell."""
    reference = results.display_name(results.table.reference)
    rows = results.table.rows
    lines = [
        f"% {results.table.title}. Needs \\usepackage{{booktabs,makecell}}.",
        f"% A dagger: {reference} differs, p < {SIGNIFICANT} (paired t-test over seeds, Holm).",
        f"\\begin{{tabular}}{{l{'r' * len(results.columns)}}}",
        "\\toprule",
        *header_lines(results),
        "\\midrule",
    ]
    for number, row in enumerate(rows):
        if number and row.in_paper != rows[number - 1].in_paper:
            lines.append("\\midrule")
        lines.append(row_line(results, row))
    lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def header_lines(results: Results) -> list[str]:
    """Write the sources above their code lengths."""
    sources, rules, first = [""], [], 2
    for name, columns in groupby(results.columns, key=lambda column: column[0]):
        n = len(list(columns))
        sources.append(f"\\multicolumn{{{n}}}{{c}}{{{escape(results.source(name).display_name)}}}")
        rules.append(f"\\cmidrule(lr){{{first}-{first + n - 1}}}")
        first += n
    bits = ["Method", *(f"{n_bits} bits" for _, n_bits in results.columns)]
    return [" & ".join(sources) + " \\\\", " ".join(rules), " & ".join(bits) + " \\\\"]


def row_line(results: Results, row: TableRow) -> str:
    cells = [escape(row.display_name)]
    for column in results.columns:
        cell = results.cells.get((row.name, column))
        best = results.best(column) == row.name
        cells.append(map_cell(cell, best=best, n_seeds=len(results.seeds)) if cell else "--")
    return " & ".join(cells) + " \\\\"


def map_cell(cell: Cell, *, best: bool, n_seeds: int) -> str:
    mean = f"{cell.map.mean:.4f}"
    text = f"\\textbf{{{mean}}}" if best else mean
    if cell.map.deviation is not None:
        text += f" $\\pm$ {cell.map.deviation:.4f}"
    if len(cell.maps) < n_seeds:
        text += f" ({len(cell.maps)} of {n_seeds} seeds)"
    if cell.p_holm is not None and cell.p_holm < SIGNIFICANT:
        text += "$^\\dagger$"
    if cell.published_map is None or cell.published_difference is None:
        return text
    published = f"\\scriptsize {cell.published_map:.4f} (${cell.published_difference:+.4f}$)"
    return f"\\makecell[r]{{{text} \\\\ {{{published}}}}}"


def escape(text: str) -> str:
    """Escape the characters that are special in LaTeX.

    >>> escape("γ = 3"), escape("my_birds")
    ('$\\\\gamma$ = 3', 'my\\\\_birds')
    """
    for character, command in (
        ("\\", "\\textbackslash{}"),
        ("&", "\\&"),
        ("%", "\\%"),
        ("#", "\\#"),
        ("_", "\\_"),
        ("γ", "$\\gamma$"),
    ):
        text = text.replace(character, command)
    return text
