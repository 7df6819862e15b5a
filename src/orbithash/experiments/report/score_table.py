"""Tables of scores in a terminal."""

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from orbithash.evaluation import Scores

SHOWN = (1, 10, 100, 1000)  # the N of precision@N; the JSON has more
RADIUS = 2  # of the precision; the JSON has all
UNSEEN = "unseen in unseen"


def as_table(name: str, scores: "Scores") -> Table:
    table = Table(title=f"{name}, {scores.n_bits} bits", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("", style="dim")
    for row in score_lines(scores):
        table.add_row(*row)
    return table


def score_lines(scores: "Scores") -> list[tuple[str, str, str]]:
    """Return a name, a value and a remark for each score."""
    lowest, highest = scores.map_bounds
    order = "" if scores.ties == "expected" else f"{scores.ties}; "
    rows = [("MAP", f"{scores.map:.4f}", f"{order}ties: {lowest:.4f} … {highest:.4f}")]
    if scores.map_asymmetric is not None:
        value = f"{scores.map_asymmetric:.4f}"
        rows.append(("MAP asymmetric", value, "float queries, stored bits"))
    if unseen := scores.transfer.get(UNSEEN):
        lowest, highest = unseen.map_bounds
        remark = f"classes that did not train; {lowest:.4f} … {highest:.4f}"
        rows.append(("MAP, unseen classes", f"{unseen.map:.4f}", remark))
    rows += look_rows(scores)
    for n, by_minimum in scores.map_at.items():
        rows.append((f"MAP@{n}", f"{by_minimum:.4f}", f"divided by min({n}, relevant)"))
        nothing = scores.nothing_found_at.get(n, 0)
        remark = f"; {nothing:.1%} find none" if nothing else ""
        rows.append(("", f"{scores.map_at_found[n]:.4f}", f"divided by the relevant found{remark}"))
    if scores.map_at_r is not None:
        rows.append(("MAP@R", f"{scores.map_at_r:.4f}", ""))
    rows.append(("NDCG", f"{scores.ndcg:.4f}", ""))
    for n, share in scores.recall_at.items():
        rows.append((f"recall@{n}", f"{share:.4f}", "queries that find a match"))
    for n, precision in scores.precision_at.items():
        if n in SHOWN:
            rows.append((f"precision@{n}", f"{precision:.4f}", ""))
    rows += radius_rows(scores)
    without = scores.queries_without_relevant
    rows.append(("queries", f"{scores.queries}", f"{without} without a match" if without else ""))
    rows.append(("database", f"{scores.database}", ""))
    return rows


def look_rows(scores: "Scores") -> list[tuple[str, str, str]]:
    """Return the look and the number of distinct codes."""
    rows = []
    if scores.look is not None:
        remark = "10 nearest by features, among 10 by code"
        rows.append(("look", f"{scores.look:.4f}", remark))
    if scores.look_asymmetric is not None:
        remark = "float queries, stored bits"
        rows.append(("look asymmetric", f"{scores.look_asymmetric:.4f}", remark))
    if scores.distinct_codes is not None:
        rows.append(("distinct codes", f"{scores.distinct_codes}", "in the database"))
    return rows


def radius_rows(scores: "Scores") -> list[tuple[str, str, str]]:
    """Return the precision within the radius: of one value, if no query's ball is empty."""
    by_radius, name = scores.precision_recall, f"precision, radius {RADIUS}"
    precision, or_zero = by_radius.precision[RADIUS], by_radius.precision_or_zero[RADIUS]
    if not (empty := by_radius.empty[RADIUS]):
        return [(name, f"{precision:.4f}", "")]
    shown = "–" if isnan(precision) else f"{precision:.4f}"
    return [
        (name, shown, f"without the {empty:.1%} of queries with none"),
        ("", f"{or_zero:.4f}", "with these as 0"),
    ]


def as_table_of_lengths(method: str, scores: "Scores") -> Table:
    """The scores of nested codes, with a row for each length."""
    title = f"{method}, nested codes: {scores.queries} queries, {scores.database} in the database"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    shown = [n for n in SHOWN if n in scores.precision_at]
    look = ("look",) if scores.look is not None else ()
    for name in ("bits", "MAP", "ties", "asymmetric", *look, *(f"precision@{n}" for n in shown)):
        table.add_column(name, justify="right", style="dim" if name == "ties" else None)
    for n_bits, of_length in {**scores.prefixes, scores.n_bits: scores}.items():
        lowest, highest = of_length.map_bounds
        ties = f"{lowest:.4f} … {highest:.4f}"
        values = (of_length.map_asymmetric, *(getattr(of_length, name) for name in look))
        others = (*values, *(of_length.precision_at[n] for n in shown))
        table.add_row(f"{n_bits}", f"{of_length.map:.4f}", ties, *(f"{x:.4f}" for x in others))
    return table


def as_table_of_transfer(scores: "Scores", held_out: Sequence[str]) -> Table:
    """The scores of queries of seen and of unseen classes."""
    n_unseen = scores.transfer[UNSEEN].queries if UNSEEN in scores.transfer else 0
    title = (
        f"Transfer: {len(held_out)} classes held out, {n_unseen} of {scores.queries} queries unseen"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("queries in …", no_wrap=True)
    for name in ("MAP", "ties", "asymmetric", "recall@1", "MAP@R"):
        table.add_column(name, justify="right", style="dim" if name == "ties" else None)
    for name, part in scores.transfer.items():
        lowest, highest = part.map_bounds
        others = (part.map_asymmetric, part.recall_at.get(1), part.map_at_r)
        table.add_row(
            name,
            f"{part.map:.4f}",
            f"{lowest:.4f} … {highest:.4f}",
            *("–" if each is None else f"{each:.4f}" for each in others),
        )
    return table
