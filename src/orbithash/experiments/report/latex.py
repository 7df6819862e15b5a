"""A table of results as LaTeX, for booktabs: MAP with its deviation, the paper's beneath, and a
dagger where the reference differs."""

from itertools import groupby

from orbithash.experiments.tables.results import Cell, Results
from orbithash.experiments.tables.spec import Line
from orbithash.experiments.tables.statistics import SIGNIFICANT


def to_latex(results: Results) -> str:
    """A tabular to \\input into a paper; needs the packages booktabs and makecell."""
    reference = results.shown(results.table.reference)
    lines = [
        f"% {results.table.title}. Needs \\usepackage{{booktabs,makecell}}.",
        f"% A dagger: {reference} differs, p < {SIGNIFICANT} (paired t-test over seeds, Holm).",
        f"\\begin{{tabular}}{{l{'r' * len(results.columns)}}}",
        "\\toprule",
        *header(results),
        "\\midrule",
    ]
    for place, line in enumerate(results.table.lines):
        if place and line.in_paper != results.table.lines[place - 1].in_paper:
            lines.append("\\midrule")
        lines.append(table_row(results, line))
    lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def header(results: Results) -> list[str]:
    """The sources over their code lengths."""
    sources, rules, first = [""], [], 2
    for name, columns in groupby(results.columns, key=lambda column: column[0]):
        n = len(list(columns))
        sources.append(f"\\multicolumn{{{n}}}{{c}}{{{escaped(results.source(name).shown)}}}")
        rules.append(f"\\cmidrule(lr){{{first}-{first + n - 1}}}")
        first += n
    bits = ["Method", *(f"{n_bits} bits" for _, n_bits in results.columns)]
    return [" & ".join(sources) + " \\\\", " ".join(rules), " & ".join(bits) + " \\\\"]


def table_row(results: Results, line: Line) -> str:
    cells = [escaped(line.shown)]
    for column in results.columns:
        cell = results.cells.get((line.row.name, column))
        best = results.best(column) == line.row.name
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
    if cell.printed is None or cell.difference is None:
        return text
    beside = f"\\scriptsize {cell.printed:.4f} (${cell.difference:+.4f}$)"
    return f"\\makecell[r]{{{text} \\\\ {{{beside}}}}}"


def escaped(text: str) -> str:
    """Text that LaTeX prints as it stands.

    >>> escaped("γ = 3"), escaped("my_birds")
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
