"""`orbithash serve`: an HTTP API and the search page."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orbithash.errors import MissingExtraError

NEEDED = ("fastapi", "uvicorn", "multipart", "prometheus_client")  # the extra `serve`


def serve_command(
    index: Annotated[
        str, typer.Argument(help="Folder that `index` wrote, or milvus:http://HOST:19530/NAME.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than loopback needs a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = 8000,
    public: Annotated[
        bool, typer.Option("--public", help="Let everyone who can reach the server search it.")
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder of the images, where the index holds relative paths."),
    ] = None,
    uploads: Annotated[
        Path | None,
        typer.Option(help="Store images that are added through the API in this folder."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Search engine for an index in a folder; see: orbithash list.")
    ] = "exact",
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Processes that serve; the codes are in memory once, limits are of each."
        ),
    ] = 1,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy", help="Trust the client address that a proxy on this machine sends."
        ),
    ] = False,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests per second of one client; 0 means no limit.")
    ] = 100.0,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Concurrent requests; others get status 503.")
    ] = 64,
    max_upload: Annotated[int, typer.Option(min=1, metavar="MIB", help="Largest request.")] = 16,
    max_pixels: Annotated[
        int,
        typer.Option(
            min=1, metavar="MILLIONS", help="Largest image that is decoded, in millions of pixels."
        ),
    ] = 50,
) -> None:
    """Serve an index: an HTTP API, and a page to search it by image.

    Example: orbithash serve photos.orbit --port 8000

    The keys come from the environment: ORBITHASH_KEY may search, add and remove items,
    ORBITHASH_READ_KEY may search. Without keys, only this machine is served, and the index is
    read-only. Ctrl-C stops the server after the requests in progress.
    """
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("serve")
    from orbithash.index import open_index  # --help must not wait for torch
    from orbithash.serve.server import run_server, run_workers
    from orbithash.serve.settings import Limits, ServeSettings, check_exposure, keys_from

    settings = ServeSettings(
        host=host,
        port=port,
        keys=keys_from(os.environ),
        public=public,
        behind_proxy=behind_proxy,
        images=images,
        uploads=uploads,
        limits=replace(
            Limits(),
            rate=rate,
            concurrency=concurrency,
            upload_bytes=max_upload << 20,
            pixels=max_pixels * 1_000_000,
        ),
    )
    check_exposure(settings)
    opened = open_index(index, engine=engine)
    count, n_bits = len(opened), opened.n_bits
    console = Console(highlight=False)

    def print_address(address: str) -> None:
        console.print(f"{count} codes of {n_bits} bits, served at", style="bold")
        print(f"  {address}", flush=True)
        console.print("Press Ctrl-C to stop it.")

    if workers == 1:
        run_server(opened, settings, ready=print_address)
        return
    opened.close()  # each worker opens it: a connection must not be shared
    run_workers(lambda: open_index(index, engine=engine), settings, workers, ready=print_address)
