"""Sources as the commands take them; what they open is loaded only when it is opened."""

from pathlib import Path
from typing import Any


def holds_features(source: str) -> bool:
    return Path(source).suffix.lower() == ".npz"


def image_files(source: str) -> Any:
    from orbithash.data.sources import image_files as opened

    return opened(source)


def images_to_encode(source: str) -> Any:
    from orbithash.data.sources import images_to_encode as opened

    return opened(source)


def absolute_source(source: str) -> str:
    from orbithash.data.sources import absolute_source as named

    return named(source)
