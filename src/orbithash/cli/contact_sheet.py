"""Results of a search as one picture: a row for each query, the query first."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError
from orbithash.files import whole_file
from orbithash.retrieval import Hit

SIDE = 160  # pixels of a cell's image
CAPTION = 18
MARGIN = 6
PER_LINE = 10  # results side by side, after the query
MAX_RESULTS = 50  # shown for a query
PAPER, INK, MISSING = "white", "black", "lightgrey"


def write_contact_sheet(results: Sequence[tuple[str, Sequence[Hit]]], file: Path) -> None:
    """Draw each query with its results; an unreadable image is a grey square."""
    lines = [line for query, hits in results for line in sheet_lines(query, hits)]
    widest = max(map(len, lines), default=1)
    width, height = SIDE + MARGIN, SIDE + CAPTION + MARGIN  # of a cell
    sheet = Image.new("RGB", (widest * width + MARGIN, len(lines) * height + MARGIN), PAPER)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            if cell is not None:
                draw_cell(sheet, column * width + MARGIN, row * height + MARGIN, *cell)
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    with whole_file(file) as opened:
        opened.write(content.getvalue())


def sheet_lines(query: str, hits: Sequence[Hit]) -> list[list[tuple[str, str] | None]]:
    """Return path and caption of each cell; lines after the first have no query cell."""
    cells = [
        (hit.path, f"{hit.rank}. {hit.distance} bits {', '.join(hit.labels)}")
        for hit in hits[:MAX_RESULTS]
    ]
    starts = range(0, max(len(cells), 1), PER_LINE)
    first = (query, "query")
    return [[None if start else first, *cells[start : start + PER_LINE]] for start in starts]


def draw_cell(sheet: Image.Image, left: int, top: int, path: str, caption: str) -> None:
    sheet.paste(thumbnail(path), (left, top))
    draw = ImageDraw.Draw(sheet)
    while draw.textlength(caption) > SIDE:
        caption = caption[:-2].rstrip("…") + "…"
    draw.text((left, top + SIDE + 3), caption, fill=INK)


def thumbnail(path: str) -> Image.Image:
    try:
        return ImageOps.pad(read_rgb(path, at_least=SIDE), (SIDE, SIDE), color=PAPER)
    except UnreadableImageError:
        return Image.new("RGB", (SIDE, SIDE), MISSING)
