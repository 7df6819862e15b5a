"""A run's log: one line of JSON per epoch, there as soon as the epoch is over."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orbithash.training.loop import Epoch


def log_to(file: Path) -> Callable[[Epoch], None]:
    """A function for `after_epoch` that appends to the file."""

    def write(epoch: Epoch) -> None:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(asdict(epoch)) + "\n")

    return write


def read_log(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
