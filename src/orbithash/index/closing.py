"""What `with` does to every engine: it closes it."""

from abc import ABC, abstractmethod
from typing import TypeVar

Opened = TypeVar("Opened", bound="ClosedAfterwards")


class ClosedAfterwards(ABC):
    """Can be used in a `with` statement, and is closed at its end."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
