"""The list of images that could not be read: one line each, path and reason."""

import logging
from collections.abc import Mapping
from pathlib import Path

from orbithash.files import whole_file

logger = logging.getLogger(__name__)


def unreadable_list(out: Path) -> Path:
    """Return where the images missing from the file `out` are listed."""
    return out.with_name(f"{out.stem}.unreadable.txt")


def write_unreadable(reasons: Mapping[str, str], file: Path) -> None:
    """Write the reason for each path; without any, remove the file."""
    for path, reason in reasons.items():
        logger.info("left out %s: %s", path, reason)
    if not reasons:
        file.unlink(missing_ok=True)
        return
    with whole_file(file) as opened:
        opened.writelines(f"{path}\t{reason}\n".encode() for path, reason in reasons.items())


def read_unreadable(file: Path) -> dict[str, str]:
    """Return the reason for each path; a line that a killed process left unfinished is ignored."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return {path: reason for path, _, reason in (line.partition("\t") for line in lines)}
