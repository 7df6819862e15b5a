"""Engines that search a structure of their own, which is made of the codes."""

import threading
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from orbithash.index.code_table import CodeTable
from orbithash.index.memory import MemoryIndex


@dataclass(frozen=True, eq=False)
class Built:
    """What was made of a table, whole."""

    table: CodeTable
    structure: Any


class DerivedIndex(MemoryIndex):
    """Codes in memory, and what `build` makes of them when they are first searched.

    A table never changes, so every change of the codes means building anew.
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._built: Built | None = None
        self._building = threading.Lock()

    def built(self, table: CodeTable) -> Any:
        """The structure of a table; while one thread makes it, others wait instead of making it."""
        with self._building:
            if self._built is None or self._built.table is not table:
                self._built = Built(table, self.build(table))
            return self._built.structure

    def built_already(self) -> Any | None:
        """The structure of the codes as they are now, if a search has had it built."""
        built = self._built
        return None if built is None or built.table is not self.table else built.structure

    @abstractmethod
    def build(self, table: CodeTable) -> Any:
        """What will be searched, ready to be."""
