"""A name of a file or folder that means it from any folder."""

import os
from pathlib import Path


def absolute_name(path: str | Path) -> str:
    """The one name of what may be named from several places: absolute, and without `..`.

    Links are kept. Whoever names a folder by a link may move the files behind it, and an index
    must know them still; and what a link to a file points to may have a name that says nothing.

    >>> absolute_name("/data/birds/../cats")
    '/data/cats'
    """
    return os.path.abspath(path)  # noqa: PTH100 — Path.resolve follows links
