"""Indexes of images, and test clients for them in the same process."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from coloured_images import coloured
from indexed_runs import image_run
from orbithash.cli import run
from orbithash.index import open_index
from orbithash.serve.settings import Keys, Limits, ServeSettings

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from fastapi.testclient import TestClient

from orbithash.serve.app import create_app
from orbithash.serve.server import encoder_or_none

WRITE_KEY, READ_KEY = "write-" + "w" * 16, "read-" + "r" * 16
API = "/api/v1"
NO_RATE_LIMIT = Limits(rate=0)


def picture_index(folder: Path, *, classes: int = 3, per_class: int = 4, n_bits: int = 24) -> Path:
    """Index small images with an encoder; item i is image i % per_class of class i // per_class."""
    coloured(folder / "photos", classes=classes, per_class=per_class)
    arguments = [str(image_run(folder / "run", n_bits=n_bits)), str(folder / "photos")]
    assert run(["index", *arguments, "--out", str(folder / "birds.orbit")]) == 0
    return folder / "birds.orbit"


@contextmanager
def client_of(
    index: Path | str, settings: ServeSettings | None = None, **headers: str
) -> Iterator[TestClient]:
    """Yield a client of an application that runs inside the block."""
    opened = open_index(index)
    app = create_app(
        opened, encoder_or_none(opened), settings or ServeSettings(limits=NO_RATE_LIMIT)
    )
    with TestClient(
        app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False, headers=headers
    ) as client:
        yield client


def with_keys(**options: object) -> ServeSettings:
    return ServeSettings(keys=Keys(WRITE_KEY, READ_KEY), limits=NO_RATE_LIMIT, **options)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def as_bytes(image: Image.Image, image_format: str = "PNG", **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, format=image_format, **options)
    return content.getvalue()


def as_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
