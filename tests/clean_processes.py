"""Commands in processes of their own that start in a moment: forked from one that has torch."""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
PRELOADED = ["orbithash.cli", "orbithash.training", "orbithash.evaluation"]


def start(arguments: Sequence[str], *, output: Path, environment: dict[str, str] | None = None):
    """Begin an `orbithash` command; its exit code is the process's."""
    return call(run_command, list(arguments), output, environment or {})


def call(function: Callable[..., None], *arguments: object):
    """Begin a function of an importable module in a process of its own."""
    # The server imports what is preloaded before it learns of pytest's paths.
    os.environ["PYTHONPATH"] = f"{SOURCES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


def together(n_processes: int) -> list[dict[str, str]]:
    """The environments that torchrun would give so many processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(n_processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_processes)]


def run_command(arguments: list[str], output: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    multiprocessing.set_start_method(None, force=True)  # what a command has of itself
    with output.open("a", encoding="utf-8") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    import torch

    from orbithash.cli import run

    torch.set_num_threads(1)
    sys.exit(run(arguments))
