"""Commands in processes of their own that start in a moment: forked from one that has torch."""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src"
PRELOADED = ["orbithash.cli", "orbithash.training", "orbithash.evaluation"]


def start(
    arguments: Sequence[str],
    *,
    output: Path,
    environment: dict[str, str] | None = None,
    signal_at: tuple[int, int] | None = None,
):
    """Begin an `orbithash` command; its exit code is the process's.

    With `signal_at=(number, n)` it sends itself this signal at its n-th file operation in the
    folder of `output`, so that the moment does not depend on the machine.
    """
    return call(run_command, list(arguments), output, environment or {}, signal_at)


def call(function: Callable[..., None], *arguments: object):
    """Begin a function of an importable module in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=function, args=arguments)
    # The server imports what is preloaded before it learns of pytest's paths.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCES), prepend=os.pathsep)
        process.start()
    return process


@contextmanager
def together(n_processes: int) -> Iterator[list[dict[str, str]]]:
    """The environments that torchrun would give so many processes."""
    with socket.socket() as reserved:
        # Bound until the processes have ended: nobody else is given the port meanwhile, but
        # whoever asks for it by number gets it, since this socket does not listen.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        shared = {
            "WORLD_SIZE": str(n_processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(reserved.getsockname()[1]),
        }
        yield [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_processes)]


def run_command(
    arguments: list[str],
    output: Path,
    environment: dict[str, str],
    signal_at: tuple[int, int] | None,
) -> None:
    os.environ.update(environment)
    multiprocessing.set_start_method(None, force=True)  # what a command has of itself
    with output.open("a", encoding="utf-8") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    import torch

    from orbithash.cli import run

    torch.set_num_threads(1)
    if signal_at:
        signal_itself(output.parent, *signal_at)
    sys.exit(run(arguments))


def signal_itself(folder: Path, number: int, at: int) -> None:
    process, n_operations = os.getpid(), 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal n_operations
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        is_ours = os.getpid() == process  # a forked worker has this hook too
        if is_ours and str(arguments[0]).startswith(str(folder)):
            n_operations += 1
            if n_operations == at:
                os.kill(process, number)

    sys.addaudithook(count)
