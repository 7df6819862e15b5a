"""Items that are added and removed through the API."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orbithash.errors import InputError, NoIdsLeftError, StorageError
from orbithash.files import whole_file
from orbithash.index import Index, Metadata, add_under_new_ids
from orbithash.index.base import Value
from orbithash.serve.pictures import format_of
from orbithash.serve.problems import RefusedError, UnknownItemError
from orbithash.serve.questions import as_array

SOURCE = "api"  # what items are said to be from, so that no folder's index run prunes them


@dataclass(frozen=True)
class Addition:
    """An item to store, and its image if it came with one."""

    code: bytes
    labels: tuple[str, ...] = ()
    fields: dict[str, Value] = field(default_factory=dict)
    image: bytes = b""


def add(index: Index, additions: Sequence[Addition], uploads: Path | None) -> list[int]:
    """Store items together, and return their ids; images are kept in `uploads`, if it is given."""
    metadata = [
        Metadata(
            path=kept(addition.image, uploads) if uploads and addition.image else "",
            labels=addition.labels,
            source=SOURCE,
            fields=addition.fields,
        )
        for addition in additions
    ]
    codes = as_array([addition.code for addition in additions])
    try:
        return [int(i) for i in add_under_new_ids(index, codes, metadata)]
    except NoIdsLeftError as error:
        raise RefusedError(str(error)) from None


def kept(image: bytes, uploads: Path) -> str:
    """Where an image was put: its name is its content, so that the same one is kept once."""
    file = uploads.absolute() / (hashlib.sha256(image).hexdigest()[:32] + format_of(image))
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(file) as opened:
                opened.write(image)
        except (OSError, InputError) as error:
            raise StorageError(f"cannot keep an image: {error}") from error
    return str(file)


def remove(index: Index, identifier: int) -> None:
    """Forget an item; its file stays, for other items may show it."""
    if index.remove(np.array([identifier], dtype=np.int64)) == 0:
        raise UnknownItemError(f"there is no item with id {identifier}")
