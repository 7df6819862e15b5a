"""The encoder in an index's folder, whose digest is among the facts of the database."""

import hashlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from orbithash.errors import DamagedIndexError, InputError
from orbithash.index.store.database import FILE, connect
from orbithash.index.store.tables import read_facts

ENCODER = "model.safetensors"  # the name it has in a run, so that orbithash.load takes either


def is_index(folder: Path) -> bool:
    return (folder / FILE).is_file()


def encoder_of_folder(folder: Path) -> bytes:
    """Return the file of the encoder of an index; its codes are not looked at."""
    with closing(connect(folder)) as connection:
        facts = read_facts(connection, folder)
    return read_encoder(folder, facts)


def read_encoder(folder: Path, facts: Mapping[str, Any]) -> bytes:
    """Return the encoder's file; raise unless it is the one that was written."""
    if "encoder" not in facts:
        raise InputError(f"{folder} holds no encoder; give codes instead of images")
    try:
        content = (folder / ENCODER).read_bytes()
    except OSError as error:
        raise DamagedIndexError(folder, f"cannot read {ENCODER}: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != facts["encoder"]:
        raise DamagedIndexError(folder, f"{ENCODER} is not as written")
    return content
