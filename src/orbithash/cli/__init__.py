"""The `orbithash` command: one file per subcommand, each a thin call into the library.

Exit codes: 0 done, 2 wrong usage or input (one line on stderr), 1 anything else, such as a full
disk, an unavailable server, or a search in which some of the given images cannot be read.
"""

import logging
import sys
import warnings
from typing import Annotated

import typer

import orbithash.kernels  # noqa: F401 — sets OMP_WAIT_POLICY before torch is loaded
from orbithash import __version__
from orbithash.cli.demo import demo_command
from orbithash.cli.duplicates import duplicates_command
from orbithash.cli.encode import encode_command
from orbithash.cli.evaluate import evaluate_command
from orbithash.cli.explain import explain_command
from orbithash.cli.export import export_command
from orbithash.cli.features import features_command
from orbithash.cli.index import index_command
from orbithash.cli.join import join_command
from orbithash.cli.listing import list_command
from orbithash.cli.options import visible
from orbithash.cli.reproduce import reproduce_command
from orbithash.cli.search import search_command
from orbithash.cli.serve import serve_command
from orbithash.cli.train import train_command
from orbithash.cli.tune import tune_command
from orbithash.errors import HashingError, ReplacedIndexError, ServerError, StorageError

# Newer versions of typer bring their own click; this finds the class in either.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

# In the messages of Python, torch and the linker, which have no common exception.
OUT_OF_MEMORY = ("can't start new thread", "can't allocate memory", "failed to map segment")

INTERRUPTED = 130  # typer's exit code for Ctrl-C

app = typer.Typer(name="orbithash", no_args_is_help=True, pretty_exceptions_enable=False)
app.command("demo")(demo_command)
app.command("features")(features_command)
app.command("train")(train_command)
app.command("evaluate")(evaluate_command)
app.command("encode")(encode_command)
app.command("index")(index_command)
app.command("search")(search_command)
app.command("duplicates")(duplicates_command)
app.command("serve")(serve_command)
app.command("join")(join_command)
app.command("export")(export_command)
app.command("reproduce")(reproduce_command)
app.command("tune")(tune_command)
app.command("explain")(explain_command)
app.command("list")(list_command)


def print_version(wanted: bool) -> bool:
    if wanted:
        print(f"orbithash {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def commands(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Learn compact binary codes from labels and search images by Hamming distance.

    New here? Start with: orbithash demo
    """


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    # Pillow's warning about an image with many pixels; the command reports it, with its path.
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")
    assert logging.lastResort is not None
    logging.lastResort.setFormatter(VisibleNames())
    try:
        # A command returns nothing; an early exit, such as after --version or Ctrl-C, has a code.
        code = app(arguments, prog_name="orbithash", standalone_mode=False) or 0
    except Exception as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("orbithash: interrupted", file=sys.stderr)
    sys.exit(1 if code else 0)


class VisibleNames(logging.Formatter):
    """Prints a warning in one line, whatever the names in it are."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(record.getMessage())


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code, for programs that must not exit."""
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def report(error: Exception) -> int:
    """Print one line about an expected error and return the exit code; raise any other error."""
    match error:
        case UsageError():
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "orbithash"
            message = error.format_message()  # type: ignore[attr-defined]
            if message:  # otherwise no command was given, and the help has been printed
                print(f"{command}: {visible(message)} (try: {command} --help)", file=sys.stderr)
            return 2
        case HashingError():
            print(visible(f"orbithash: {error}"), file=sys.stderr)
            # These may succeed when repeated; any other error is about the arguments.
            return 1 if isinstance(error, StorageError | ServerError | ReplacedIndexError) else 2
        case OSError():
            print(visible(f"orbithash: {error}"), file=sys.stderr)
            return 1
        case typer.Abort():
            print("orbithash: interrupted", file=sys.stderr)
            return 1
    if isinstance(error, MemoryError) or any(text in str(error) for text in OUT_OF_MEMORY):
        reason = visible(str(error).partition("\n")[0]) or "no memory is left"
        print(f"orbithash: {reason}; free memory or raise its limit, and repeat", file=sys.stderr)
        return 1
    raise error
