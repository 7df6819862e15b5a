"""Files of published benchmarks; errors name the missing file and say where to download it."""

from collections.abc import Iterable
from pathlib import Path

from orbithash.errors import InputError

# Download page of each benchmark; orbithash never downloads anything.
HOMES = {
    "cub200_2011": "https://www.vision.caltech.edu/datasets/cub_200_2011/",
    "stanford_dogs": "http://vision.stanford.edu/aditya86/ImageNetDogs/",
    "sun397": "https://vision.princeton.edu/projects/2010/SUN/",
    "voc2007": "http://host.robots.ox.ac.uk/pascal/VOC/voc2007/",
}


def read_lines(file: Path, *, advice: str) -> list[str]:
    """Return the non-empty lines of a text file, stripped; any newline style.

    `advice` tells the user how to get the file; it ends the error message.
    """
    require_file(file, advice=advice)
    try:
        # Editors on Windows may begin a file with a byte order mark.
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; {advice}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def require_file(file: Path, *, advice: str) -> None:
    if not file.is_file():
        raise InputError(f"{file} is missing; {advice}")


def require_files(folder: Path, paths: Iterable[str], *, what: str, advice: str) -> None:
    """Raise unless every path beneath the folder is a file.

    The error counts the missing files, calls them `what` (such as "images"), names the first and
    ends with `advice`.
    """
    paths = list(paths)
    missing = [path for path in paths if not (folder / path).is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(paths)} {what} are missing, the first is "
            f"{folder / missing[0]}; {advice}"
        )
