"""`orbithash list`: the methods, backbones, datasets and engines by name."""

import inspect
import json
from collections.abc import Mapping
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the methods, backbones, datasets and search engines, each with one line about it.

    Example: orbithash list --json
    """
    from orbithash.data import HOMES
    from orbithash.data.benchmarks import DATASETS  # --help must not wait for torch
    from orbithash.hashers import HASHERS
    from orbithash.index import ENGINES
    from orbithash.losses import LOSSES
    from orbithash.networks import BACKBONES

    registries: dict[str, Mapping[str, object]] = {
        "Methods that train a network (losses)": LOSSES,
        "Methods that are fitted to features (hashers)": HASHERS,
        "Backbones": BACKBONES,
        "Datasets": DATASETS,
        "Search engines": ENGINES,
    }
    if as_json:
        described = {
            title: {name: first_line(entry) for name, entry in registry.items()}
            for title, registry in registries.items()
        }
        print(json.dumps(described, indent=2))
        return
    console = Console()
    for title, registry in registries.items():
        console.print(as_table(title, registry))
    console.print(homes_table(HOMES))


def as_table(title: str, registry: Mapping[str, object]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE)
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("description")
    for name, entry in registry.items():
        table.add_row(name, first_line(entry))
    return table


def homes_table(homes: Mapping[str, str]) -> Table:
    table = Table(
        title="Where to get the benchmarks; give them as NAME:FOLDER",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE,
    )
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("its authors' page", no_wrap=True)
    for name, home in homes.items():
        table.add_row(name, home)
    return table


def first_line(entry: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(entry) or "").partition("\n")[0]
