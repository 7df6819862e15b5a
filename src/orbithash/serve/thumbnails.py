"""Small pictures that were made before, as many as fit."""

import threading
from collections import OrderedDict
from pathlib import Path

from orbithash.serve.pictures import thumbnail_of
from orbithash.serve.problems import UnknownItemError

MOST_BYTES = 64 << 20  # about four thousand


class Thumbnails:
    """Makes each small picture once, while it is remembered; for use in several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._most, self._n_bytes = most_bytes, 0
        self._lock = threading.Lock()

    def of(self, file: Path) -> bytes:
        try:
            key = (str(file), file.stat().st_mtime_ns)
        except OSError:
            raise UnknownItemError("there is no picture of this item any more") from None
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        content = thumbnail_of(file)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = content
                self._n_bytes += len(content)
            while self._n_bytes > self._most:
                self._n_bytes -= len(self._kept.popitem(last=False)[1])
        return content
