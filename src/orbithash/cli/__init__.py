"""The `orbithash` command: one file per verb, each a thin call into the library.

Exit codes: 0 done, 2 wrong usage or input (one line on stderr), 1 anything else, as a full disk or
a server that is away.
"""

import sys
from typing import Annotated

import typer

import orbithash.kernels  # noqa: F401 — sets how threads wait, before torch is loaded
from orbithash import __version__
from orbithash.cli.demo import demo
from orbithash.cli.encode import encode
from orbithash.cli.evaluate import evaluate
from orbithash.cli.explain import explain
from orbithash.cli.export import export
from orbithash.cli.features import features
from orbithash.cli.index import index
from orbithash.cli.listing import list_registries
from orbithash.cli.reproduce import reproduce
from orbithash.cli.search import search
from orbithash.cli.serve import serve
from orbithash.cli.train import train
from orbithash.cli.tune import tune
from orbithash.errors import HashingError, ServerError, StorageError

# Typer brings its own copy of click from some version on; this finds the class in either.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

INTERRUPTED = 130  # the code that typer gives for Ctrl-C

app = typer.Typer(
    name="orbithash", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.command("demo")(demo)
app.command("features")(features)
app.command("train")(train)
app.command("evaluate")(evaluate)
app.command("encode")(encode)
app.command("index")(index)
app.command("search")(search)
app.command("serve")(serve)
app.command("export")(export)
app.command("reproduce")(reproduce)
app.command("tune")(tune)
app.command("explain")(explain)
app.command("list")(list_registries)


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


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        # A command returns nothing; an early exit, as after --version or Ctrl-C, gives its code.
        code = app(arguments, prog_name="orbithash", standalone_mode=False) or 0
        if code == INTERRUPTED:
            print("orbithash: interrupted", file=sys.stderr)
        return 1 if code else 0
    except UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "orbithash"
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # no command at all: the help has been shown instead
            return 2
        print(f"{command}: {message} (try: {command} --help)", file=sys.stderr)
        return 2
    except HashingError as error:
        print(f"orbithash: {error}", file=sys.stderr)
        # What was asked for was right, and may work another time.
        return 1 if isinstance(error, StorageError | ServerError) else 2
    except OSError as error:  # of the machine, as a disk that is full
        print(f"orbithash: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        print("orbithash: interrupted", file=sys.stderr)
        return 1
