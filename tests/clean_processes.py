"""Commands in processes of their own that start in a moment: forked from one that has torch."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
PRELOADED = ["orbithash.cli", "orbithash.training", "orbithash.evaluation"]


def start(arguments: Sequence[str], *, output: Path, environment: dict[str, str] | None = None):
    """Begin an `orbithash` command; its exit code is the process's."""
    # The server imports what is preloaded before it learns of pytest's paths.
    os.environ["PYTHONPATH"] = f"{SOURCES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(
        target=run_command, args=(list(arguments), output, environment or {}), daemon=False
    )
    process.start()
    return process


def run_command(arguments: list[str], output: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    with output.open("a", encoding="utf-8") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    import torch

    from orbithash.cli import run

    torch.set_num_threads(1)
    sys.exit(run(arguments))
