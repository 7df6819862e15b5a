"""`orbithash index`: codes of images or features, or of a file, stored to be searched."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orbithash.cli.options import Device, Ray, visible
from orbithash.errors import DamagedIndexError, InputError

if TYPE_CHECKING:
    from orbithash.retrieval import IndexReport

SHOWN = 5  # paths that are printed of each kind; the rest is counted


def index_command(
    out: Annotated[
        str, typer.Option(help="The index: a folder, or milvus:http://HOST:19530/NAME.")
    ],
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN SOURCE]",
            help="Folder that `train` wrote; and images (any folder, .csv, .parquet, NAME:FOLDER), "
            "or features (.npz). With --codes: FILE…, after a RUN if you have one.",
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove items that SOURCE no longer has.")
    ] = False,
    remove: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Remove an item; may be given several times."),
    ] = None,
    codes: Annotated[
        bool,
        typer.Option(
            "--codes",
            help="Store codes that you have, of files: .npz that `encode` or any other program "
            "wrote, or .npy with --bits.",
        ),
    ] = False,
    new_ids: Annotated[
        bool, typer.Option("--new-ids", help="With --codes: new ids, even if FILE has ids.")
    ] = False,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Write all codes into one file, without removed items."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read everything, and report what is damaged.")
    ] = False,
    bits: Annotated[
        int | None,
        typer.Option(
            "--bits",
            help="Only the first bits of a run that was trained with --nested, such as 32; with "
            "--codes, the number of bits of codes in an .npy.",
        ),
    ] = None,
    device: Device = "cpu",
    ray: Ray = None,
) -> None:
    """Encode and store every image; again on the same index, only new and changed ones.

    Example: orbithash index runs/photos photos/ --out photos.orbit

    Example: orbithash index --codes codes.npy --bits 64 --out codes.orbit

    Items that SOURCE no longer has are reported, and removed with --prune. An interrupted command
    continues when it is repeated. With --remove, --compact or --check alone, RUN and SOURCE may be
    left out. The second example stores codes of any program, up to billions.
    """
    console, names = Console(), given or []
    if new_ids and not codes:
        raise InputError("--new-ids is for --codes; an index gives images new ids anyway")
    if ray is not None and (codes or len(names) != 2):
        raise InputError("--ray encodes; give RUN and SOURCE, and no --codes")
    if codes:
        store_codes(console, out, names, bits=bits, new_ids=new_ids, device=device)
    elif len(names) > 2:
        raise InputError(f"got {names[2]} after RUN and SOURCE; give one SOURCE at a time")
    elif len(names) == 1:
        raise InputError(
            f"got {names[0]} alone; give both RUN and SOURCE, or to remove several items repeat "
            "--remove: --remove 17 --remove 18; codes in a file need --codes"
        )
    elif not names and prune:
        raise InputError("--prune removes what is gone from SOURCE; give RUN and SOURCE too")
    elif not names and not (remove or compact or check):
        raise InputError(
            "give RUN and SOURCE, or --remove ID, --codes FILE, --compact or --check; try: "
            "orbithash index --help"
        )
    elif names:
        run, source = names
        update(console, out, Path(run), source, prune=prune, bits=bits, device=device, ray=ray)
    if remove:
        remove_items(console, out, remove)
    if compact:
        compact_index(console, out)
    if check:
        check_index(console, out)


def update(
    console: Console,
    out: str,
    run: Path,
    source: str,
    *,
    prune: bool,
    bits: int | None,
    device: str,
    ray: str | None,
) -> None:
    from orbithash import load, open_index  # --help must not wait for torch
    from orbithash.data import open_unlabelled
    from orbithash.data.sources import absolute_source
    from orbithash.encoders.encoder import check_encodes
    from orbithash.encoders.progress import progress_bar

    data, name = open_unlabelled(source), absolute_source(source)
    encoder = load(run, device=device)
    if bits is not None:
        encoder = encoder.prefix(bits)
    check_encodes(encoder, data)  # a wrong source must not leave a new, empty index
    with open_index(out, encoder=encoder) as opened:
        try:
            with progress_bar(console) as show:
                report = opened.add_images(data, name=name, prune=prune, progress=show, ray=ray)
        except KeyboardInterrupt:
            console.print("Stopped; repeat the command to continue.")
            raise
        count = len(opened)
    print_report(console, report)
    print_count(console, count, encoder.n_bits, out)


def store_codes(
    console: Console,
    out: str,
    names: list[str],
    *,
    bits: int | None,
    new_ids: bool,
    device: str,
) -> None:
    from orbithash.data.code_batches import open_codes  # --help must not wait for numpy
    from orbithash.encoders.progress import progress_bar
    from orbithash.retrieval.codes_indexing import index_codes
    from orbithash.retrieval.search_index import open_for_codes

    has_run = bool(names) and (names[0].startswith("hf:") or Path(names[0]).is_dir())
    run = names.pop(0) if has_run else None
    if not names:
        raise InputError("--codes needs files; write: orbithash index --codes FILE… --out INDEX")
    files = [open_codes(Path(name), bits) for name in names]  # all, before anything is stored
    for file in files:
        if file.n_bits != files[0].n_bits:
            raise InputError(
                f"{file.file} has codes of {file.n_bits} bits and {files[0].file} of "
                f"{files[0].n_bits}; give each length an index of its own"
            )
    encoder = None
    if run is not None:
        from orbithash import load

        encoder = load(run, device=device)
    files.sort(key=lambda file: file.shard or (0, 0))  # new ids in the order of the source
    with open_for_codes(out, files[0].n_bits, encoder) as index:
        for file in files:
            with progress_bar(console) as show:
                report = index_codes(
                    *(index, file), new_ids=new_ids, as_source=encoder is not None, progress=show
                )
            print_report(console, report)
        count = len(index)
    print_count(console, count, files[0].n_bits, out)
    shards = {file.shard for file in files if file.shard}
    for n in sorted({n for _, n in shards}):
        if missing := [f"{k}/{n}" for k in range(1, n + 1) if (k, n) not in shards]:
            console.print("Not given, and so not stored by this command:")
            print_some([f"shard {name}" for name in missing])


def print_count(console: Console, count: int, n_bits: int, out: str) -> None:
    console.print(f"{count} codes of {n_bits} bits:", style="bold")
    print(f"  {out}")


def print_report(console: Console, report: "IndexReport") -> None:
    console.print(
        f"{report.new} new, {report.changed} changed, {report.unchanged} as before, "
        f"{len(report.gone)} gone."
    )
    if report.gone:
        console.print(
            "Removed, because they are gone:"
            if report.pruned
            else "Gone from the source, but still in the index (--prune removes them):"
        )
        print_some([f"{path} (id {identifier})" for path, identifier in report.gone.items()])
    if report.unreadable:
        console.print(f"Left out {len(report.unreadable)} images that cannot be read:")
        print_some([f"{path}: {reason}" for path, reason in report.unreadable.items()])


def print_some(lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        print(f"  {visible(line)}")
    if len(lines) > SHOWN:
        print(f"  … and {len(lines) - SHOWN} more")


def remove_items(console: Console, out: str, ids: list[int]) -> None:
    from orbithash.index import open_index
    from orbithash.index.checks import as_ids

    with open_index(out) as opened:
        removed = opened.remove(as_ids(ids))
        console.print(f"Removed {removed} of {len(ids)} items; {len(opened)} are left.")


def compact_index(console: Console, out: str) -> None:
    from orbithash.index.addresses import open_folder

    with open_folder(out, "--compact") as opened:
        opened.compact()
        stats = opened.stats()
        console.print(f"{stats.count} codes in one file; the index has {stats.disk_bytes} bytes.")


def check_index(console: Console, out: str) -> None:
    """Print what is damaged and raise, or say that nothing is."""
    from orbithash.index.addresses import open_folder

    with open_folder(out, "--check", unchecked=True) as opened:
        problems = opened.check()
        if problems:
            console.print(f"{len(problems)} problems:", style="bold")
            print_some(problems)
            raise DamagedIndexError(Path(out), problems[0])
        console.print(f"All {len(opened)} codes and their metadata are as written.")
