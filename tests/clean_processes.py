"""Commands in processes of their own that start in a moment: forked from one that has torch."""

import multiprocessing
import os
import runpy
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared_compilation import share_compilation

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


def start_program(file: Path, arguments: Sequence[str], *, output: Path):
    """Begin a Python program; `output` gets what it prints."""
    return call(run_program, file, list(arguments), output)


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


def run_program(file: Path, arguments: list[str], output: Path) -> None:
    multiprocessing.set_start_method(None, force=True)
    write_to(output, streams=(1,))
    share_compilation()
    sys.argv = [str(file), *arguments]
    sys.path[0] = str(file.parent)
    runpy.run_path(str(file), run_name="__main__")
    sys.stdout.flush()


def write_to(output: Path, streams: Sequence[int] = (1, 2)) -> None:
    with output.open("a", encoding="utf-8") as opened:
        for stream in streams:
            os.dup2(opened.fileno(), stream)


def run_command(
    arguments: list[str],
    output: Path,
    environment: dict[str, str],
    signal_at: tuple[int, int] | None,
) -> None:
    os.environ.update(environment)
    multiprocessing.set_start_method(None, force=True)  # what a command has of itself
    write_to(output)
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
