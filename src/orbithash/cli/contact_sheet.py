"""Results of a search as one picture: a row for each query, the query first."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from orbithash.data.transforms import to_rgb
from orbithash.files import whole_file
from orbithash.retrieval import Answer

SIDE = 160  # of a cell's image, in pixels
CAPTION = 18
MARGIN = 6
PER_LINE = 10  # results side by side, after the query
MOST = 50  # results of a query that are shown
PAPER, INK, MISSING = "white", "black", "lightgrey"


def write_contact_sheet(answers: Sequence[Answer], file: Path) -> None:
    """Draw each query and what it found; an image that cannot be read is a grey square."""
    lines = [line for answer in answers for line in lines_of(answer)]
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


def lines_of(answer: Answer) -> list[list[tuple[str, str] | None]]:
    """Path and caption of each cell; lines after the first leave the query's place empty."""
    cells = [
        (hit.path, f"{hit.rank}. {hit.distance} bits {', '.join(hit.labels)}")
        for hit in answer.hits[:MOST]
    ]
    starts = range(0, max(len(cells), 1), PER_LINE)
    query = (answer.query, "query")
    return [[None if start else query, *cells[start : start + PER_LINE]] for start in starts]


def draw_cell(sheet: Image.Image, left: int, top: int, path: str, caption: str) -> None:
    sheet.paste(thumbnail(path), (left, top))
    draw = ImageDraw.Draw(sheet)
    while draw.textlength(caption) > SIDE:
        caption = caption[:-2].rstrip("…") + "…"
    draw.text((left, top + SIDE + 3), caption, fill=INK)


def thumbnail(path: str) -> Image.Image:
    try:
        with Image.open(path) as image:
            whole = to_rgb(ImageOps.exif_transpose(image))
        return ImageOps.pad(whole, (SIDE, SIDE), color=PAPER)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return Image.new("RGB", (SIDE, SIDE), MISSING)
