"""A run's log: one line of JSON per epoch, there as soon as the epoch is over."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orbithash.training.epoch import Epoch


def log_to(file: Path) -> Callable[[Epoch], None]:
    """A function for `after_epoch` that writes the file anew, line by line.

    A run that goes on tells of its earlier epochs first, so the file needs nothing of what a
    process that was killed left in it.
    """
    file.unlink(missing_ok=True)

    def write(epoch: Epoch) -> None:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(asdict(epoch)) + "\n")

    return write


def read_log(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
