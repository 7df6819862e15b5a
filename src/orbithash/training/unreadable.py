"""The images that could not be read, in a file that grows as they are met."""

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


class UnreadableList:
    """Each path once, with the reason; kept when a run is stopped and goes on."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.reasons = read_unreadable(file)

    def __call__(self, path: str, reason: str) -> None:
        """Note an image, however often it is met."""
        if path in self.reasons:
            return
        self.reasons[path] = reason
        logger.info("cannot read %s: %s", path, reason)
        with self.file.open("a", encoding="utf-8") as opened:
            opened.write(f"{path}\t{reason}\n")


def read_unreadable(file: Path) -> dict[str, str]:
    """Reasons by path; a line that was not finished when its process died is met again."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {path: reason for path, tab, reason in (line.partition("\t") for line in lines) if tab}
