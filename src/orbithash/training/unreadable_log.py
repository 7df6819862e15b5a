"""The images that could not be read, in a file that grows while training meets them."""

import logging
from pathlib import Path

from orbithash.training.distributed import ALONE, Processes

logger = logging.getLogger(__name__)


class UnreadableList:
    """Each path once, with the reason; kept when a run is stopped and goes on.

    Of several processes the first writes what it meets, and at the end what all have met.
    """

    def __init__(self, file: Path, processes: Processes = ALONE) -> None:
        self.file, self.processes = file, processes
        if processes.first:
            cut_unfinished_line(file)
        self.reasons = read_unreadable(file)

    def __call__(self, path: str, reason: str) -> None:
        """Note an image, however often it is met."""
        if path in self.reasons:
            return
        self.reasons[path] = reason
        logger.info("cannot read %s: %s", path, reason)
        if not self.processes.first:
            return
        with self.file.open("a", encoding="utf-8") as opened:
            opened.write(f"{path}\t{reason}\n")

    def join(self) -> None:
        """Note what the other processes have met; all must come here together."""
        for reasons in self.processes.gather_objects(self.reasons):
            for path, reason in reasons.items():
                self(path, reason)


def read_unreadable(file: Path) -> dict[str, str]:
    """Reasons by path."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return {path: reason for path, _, reason in (line.partition("\t") for line in lines)}


def cut_unfinished_line(file: Path) -> None:
    """Drop what a process had begun to write when it was killed; its image will be met again."""
    if file.exists():
        content = file.read_bytes()
        if not content.endswith(b"\n"):
            file.write_bytes(content[: content.rfind(b"\n") + 1])
