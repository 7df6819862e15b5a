"""`orbithash encode`: codes alone, in one file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.cli.options import Device, PrefixBits, Ray, print_unreadable
from orbithash.errors import InputError
from orbithash.files import check_new_file


def encode_command(
    run: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    source: Annotated[
        str,
        typer.Argument(
            help="Images (any folder, .csv, .parquet, NAME:FOLDER), or features (.npz); "
            "no labels needed."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File for the codes, an .npz.")],
    bits: PrefixBits = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="K/N",
            help="Only the K-th of N parts of SOURCE, such as 3/16, so that N machines encode it.",
        ),
    ] = None,
    device: Device = "cpu",
    ray: Ray = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier file.")] = False,
) -> None:
    """Encode every row: ids (row numbers), codes, n_bits, and labels, paths and split where known.

    Example: orbithash encode runs/photos photos/ --out codes.npz

    `orbithash evaluate` scores the file. Unreadable images are left out and listed in a text file
    beside the codes.

    Shards keep the row numbers of the whole SOURCE as ids. Together they become one index:
    orbithash index --codes RUN part*.npz --out INDEX
    """
    part = None if shard is None else parsed_shard(shard)
    check_new_file(out, suffix=".npz", force=force)
    from orbithash import load  # --help must not wait for torch
    from orbithash.data import open_unlabelled
    from orbithash.data.sources import absolute_source
    from orbithash.encoders import encode_source
    from orbithash.encoders.encoding import unreadable_list, write_codes, write_unreadable
    from orbithash.encoders.items import origin_of, shard_rows
    from orbithash.encoders.on_ray import encode_on_ray
    from orbithash.encoders.progress import progress_bar

    encoder = load(run, device=device)
    if bits is not None:
        encoder = encoder.prefix(bits)
    data = open_unlabelled(source)
    rows = shard_rows(len(data), *(part or (1, 1)))
    origin = origin_of(data, absolute_source(source), rows)
    console = Console()
    with progress_bar(console) as report:
        if ray is None:
            encoded = encode_source(encoder, data, rows=rows, progress=report)
        else:
            encoded = encode_on_ray(encoder, data, rows, report, address=ray)
    write_codes(out, encoded, data, origin, part)
    write_unreadable(encoded.unreadable, unreadable_list(out))
    print_unreadable(console, len(encoded.unreadable), unreadable_list(out))
    console.print(f"{len(encoded.rows)} codes of {encoder.n_bits} bits:", style="bold")
    print(f"  {out}")


def parsed_shard(text: str) -> tuple[int, int]:
    """Return number and count of a shard.

    >>> parsed_shard("3/16")
    (3, 16)
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise InputError(f"--shard is {text!r}; give a number and a count, such as 3/16")
    return int(number), int(count)
