"""The images that could not be read, listed beside what was made of the others."""

import logging
from collections.abc import Mapping
from pathlib import Path

from orbithash.files import whole_file

logger = logging.getLogger(__name__)


def unreadable_list(out: Path) -> Path:
    """Where the images are listed that the file `out` lacks; no such file if all could be read."""
    return out.with_name(f"{out.stem}.unreadable.txt")


def write_unreadable(reasons: Mapping[str, str], file: Path) -> None:
    """Write the reason by path, a line each; without any, no file."""
    for path, reason in reasons.items():
        logger.info("left out %s: %s", path, reason)
    if not reasons:
        file.unlink(missing_ok=True)
        return
    with whole_file(file) as opened:
        opened.writelines(f"{path}\t{reason}\n".encode() for path, reason in reasons.items())
