"""Committed results in pages: what stands between two marks follows from a results.json.

    <!-- results of main: short -->
    <!-- end of results -->

holds the table of `experiments/main/results.json` and where the reference stands; with `table` in
place of `short`, the table alone; with `whole`, everything that table.md has. A table without
results leaves the page as it is.

    python -m orbithash.experiments.report.show_results README.md docs/results.md
"""

import re
import sys
from pathlib import Path

from orbithash.experiments.report.markdown import how_to_read, in_short, map_table, to_markdown
from orbithash.experiments.tables.results import Results, read_results
from orbithash.files import whole_file

MARKED = re.compile(
    r"(?P<begin><!-- results of (?P<table>[\w-]+): (?P<form>table|short|whole) -->\n)"
    r".*?"
    r"(?P<end><!-- end of results -->)",
    re.DOTALL,
)


def refreshed(text: str, results_folder: Path) -> str:
    """The page with the results that are there now."""

    def written(marked: re.Match[str]) -> str:
        file = results_folder / marked["table"] / "results.json"
        if not file.exists():
            return marked[0]
        form = FORMS[marked["form"]]
        return f"{marked['begin']}\n{form(read_results(file))}\n\n{marked['end']}"

    return MARKED.sub(written, text)


def table_form(results: Results) -> str:
    return f"{how_to_read(results)}\n\n{map_table(results)}"


def short_form(results: Results) -> str:
    return f"{table_form(results)}\n\n{in_short(results)}"


def whole_form(results: Results) -> str:
    """As table.md without its title, one level of headings lower: the page has its own."""
    _, _, body = to_markdown(results).partition("\n\n")
    return re.sub("^#", "##", body, flags=re.MULTILINE).strip()


FORMS = {"table": table_form, "short": short_form, "whole": whole_form}


def refresh(page: Path, results_folder: Path) -> None:
    """Rewrite the page, if it is stale."""
    text = page.read_text(encoding="utf-8")
    fresh = refreshed(text, results_folder)
    if fresh != text:
        with whole_file(page) as file:
            file.write(fresh.encode())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refresh(Path(name), Path("experiments"))
