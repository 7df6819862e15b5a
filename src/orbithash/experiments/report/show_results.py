"""Committed results in Markdown pages: rewrite the part between two marks from a results.json.

    <!-- results of main: short -->
    <!-- end of results -->

`short` shows the table of `experiments/main/results.json` and a sentence on the rank of the
reference, `table` the table alone, `rankings` both rankings of each method, `look` their look and
distinct codes, `beside` all scores of a table of unseen classes, and `whole` all of table.md. If
there is no such file, the page stays as it is. `results of all: overview` shows some rows of
several tables; their picture is written to `docs/images/results.svg`.

    python -m orbithash.experiments.report.show_results README.md docs/results.md
"""

import re
import sys
from pathlib import Path

from orbithash.experiments.report.markdown import (
    HOW_BESIDE,
    HOW_LOOK,
    HOW_RANKED,
    asymmetric_table,
    beside_table,
    column_name,
    how_to_read,
    look_table,
    map_table,
    standing_summary,
    to_markdown,
)
from orbithash.experiments.report.overview import overview_picture, overview_table
from orbithash.experiments.tables.results import Results
from orbithash.experiments.tables.results_json import read_results
from orbithash.files import whole_file, write_text

PICTURE = Path("docs/images/results.svg")


def refresh(page: Path, results_folder: Path) -> None:
    """Rewrite the page if it is out of date."""
    text = page.read_text(encoding="utf-8")
    fresh = refreshed(text, results_folder)
    if fresh != text:
        with whole_file(page) as file:
            file.write(fresh.encode())


def refreshed(text: str, results_folder: Path) -> str:
    """Return the page with the current results."""

    def replacement(marked: re.Match[str]) -> str:
        if marked["form"] == "overview":
            return f"{marked['begin']}\n{overview_table(results_folder)}\n\n{marked['end']}"
        file = results_folder / marked["table"] / "results.json"
        if not file.exists():
            return marked[0]
        form = FORMS[marked["form"]]
        return f"{marked['begin']}\n{form(read_results(file))}\n\n{marked['end']}"

    return MARKED.sub(replacement, text)


def table_form(results: Results) -> str:
    return f"{how_to_read(results)}\n\n{map_table(results)}"


def short_form(results: Results) -> str:
    return f"{table_form(results)}\n\n{standing_summary(results)}"


def rankings_form(results: Results) -> str:
    return f"{HOW_RANKED}\n\n{asymmetric_table(results)}"


def look_form(results: Results) -> str:
    return f"{HOW_LOOK}\n\n{look_table(results)}"


def beside_form(results: Results) -> str:
    tables = (
        f"{column_name(results, column)}:\n\n{beside_table(results, column)}"
        for column in results.columns
    )
    return "\n\n".join([HOW_BESIDE, *tables])


def whole_form(results: Results) -> str:
    """Return table.md without its title and with headings one level lower."""
    _, _, body = to_markdown(results).partition("\n\n")
    return re.sub("^#", "##", body, flags=re.MULTILINE).strip()


FORMS = {
    "table": table_form,
    "short": short_form,
    "rankings": rankings_form,
    "look": look_form,
    "beside": beside_form,
    "whole": whole_form,
}

MARKED = re.compile(
    rf"(?P<begin><!-- results of (?P<table>[\w-]+): (?P<form>overview|{'|'.join(FORMS)}) -->\n)"
    r".*?"
    r"(?P<end><!-- end of results -->)",
    re.DOTALL,
)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refresh(Path(name), Path("experiments"))
    write_text(PICTURE, overview_picture(Path("experiments")))
