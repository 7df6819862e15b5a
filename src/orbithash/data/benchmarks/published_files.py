"""Folders as the authors of a benchmark publish them, and what is said when one is not whole."""

from collections.abc import Iterable
from pathlib import Path

from orbithash.errors import InputError

# The pages of their authors, for whoever has not got them: nothing is ever downloaded here.
HOMES = {
    "cub200_2011": "https://www.vision.caltech.edu/datasets/cub_200_2011/",
    "stanford_dogs": "http://vision.stanford.edu/aditya86/ImageNetDogs/",
    "sun397": "https://vision.princeton.edu/projects/2010/SUN/",
    "voc2007": "http://host.robots.ox.ac.uk/pascal/VOC/voc2007/",
}


def read_lines(file: Path, *, advice: str) -> list[str]:
    """The lines of a text file that hold anything, stripped, whoever's line ends they have."""
    require_file(file, advice=advice)
    try:
        # Editors on Windows may have put a byte order mark before the first line.
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; {advice}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def require_file(file: Path, *, advice: str) -> None:
    if not file.is_file():
        raise InputError(f"{file} is missing; {advice}")


def require_files(folder: Path, paths: Iterable[str], *, what: str, advice: str) -> None:
    """Raise unless every path beneath the folder is a file; the first that is not is named."""
    paths = list(paths)
    missing = [path for path in paths if not (folder / path).is_file()]
    if missing:
        raise InputError(
            f"{folder / missing[0]} is missing, one of {len(missing)} missing {what} of "
            f"{len(paths)}; {advice}"
        )
