"""All errors that this library raises on purpose.

HashingError
├── InputError            (ValueError)    invalid input: an argument, an array, a file
│   ├── CodeLengthError                   codes of different lengths were compared
│   ├── UnreadableImageError              an image file is missing, damaged or not an image
│   ├── DivergedError                     a loss became NaN or infinite in training
│   ├── UnknownIdError                    an index holds no item with this id
│   ├── UnknownLabelError                 a filter names a label that no item of an index has
│   ├── IdInUseError                      an item was added under the id of another
│   ├── PathInUseError                    an item of the same source has the same path
│   ├── NoIdsLeftError                    an index has no free ids above the largest in use
│   └── DamagedIndexError                 the files of an index are damaged
├── StorageError          (OSError)       a write failed, for example on a full disk
├── ServerError      (ConnectionError)    a server is unavailable or refused a request
└── MissingExtraError     (ImportError)   an optional dependency is not installed
"""

from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

SHOWN_LABELS = 5  # in a message about an unknown one


class HashingError(Exception):
    """Base class of all errors of this library."""


class InputError(HashingError, ValueError):
    """Invalid input; the message says what is needed."""


class DivergedError(InputError):
    """A loss became NaN or infinite: training with these settings diverges."""


class CodeLengthError(InputError):
    """Two sets of codes disagree on the number of bytes."""

    def __init__(self, name: str, *, got: int, expected: int, n_bits: int) -> None:
        super().__init__(
            f"{name} codes have {got} bytes where {n_bits} bits need {expected}; "
            "encode queries and database with the same encoder and pass its number of bits"
        )


class UnreadableImageError(InputError):
    """An image file cannot be read; a caller that reads many may skip it."""

    def __init__(
        self, path: Path, reason: str, advice: str = "repair the file or leave it out"
    ) -> None:
        super().__init__(f"cannot read {path}: {reason}; {advice}")
        self.path, self.reason, self.advice = path, reason, advice


class UnknownIdError(InputError):
    """An index holds no item with this id."""

    def __init__(self, identifier: int) -> None:
        super().__init__(f"there is no item with id {identifier}; ids are shown by search")


class UnknownLabelError(InputError):
    """A filter names a label that no item of an index has."""

    def __init__(self, label: str, known: Collection[str] | None = None) -> None:
        self.label = label
        hint = "give a label of the indexed items" if known is None else label_hint(label, known)
        super().__init__(f"no item has the label {label!r}; {hint}")


def label_hint(label: str, known: Collection[str]) -> str:
    """Return which label may be meant.

    >>> label_hint("House wren", ["195.Carolina_Wren", "196.House_Wren", "200.Yellowthroat"])
    'did you mean 196.House_Wren?'
    >>> label_hint("wren", ["robin", "gull", "crow"])
    'the labels are robin, gull, crow'
    """
    if not known:
        return "the items of this index have no labels"
    by_lowercase = {name.casefold(): name for name in known}
    wanted = label.casefold()
    close = [name for name in by_lowercase if wanted in name]
    close = close or get_close_matches(wanted, by_lowercase, SHOWN_LABELS)
    if close:
        return f"did you mean {' or '.join(by_lowercase[name] for name in close[:SHOWN_LABELS])}?"
    n_more = len(known) - SHOWN_LABELS
    more = f" and {n_more} more" if n_more > 0 else ""
    return f"the labels are {', '.join(list(known)[:SHOWN_LABELS])}{more}"


class IdInUseError(InputError):
    """An item was added under an id that is in use."""

    def __init__(self, identifier: int) -> None:
        super().__init__(
            f"id {identifier} is stored already; give another id, or replace the item with update"
        )


class PathInUseError(InputError):
    """An item was added with the path of another item of the same source."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        super().__init__(
            f"{path} of {source} is stored already; replace the item with update, or give the "
            "other one another source"
        )


class NoIdsLeftError(InputError):
    """New items would need ids above the largest int64."""

    def __init__(self) -> None:
        super().__init__("there are no ids left above the largest one in use; create a new index")


class DamagedIndexError(InputError):
    """A file of an index has changed since it was written: truncated, overwritten, flipped bits."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the index {path} is damaged: {reason}; restore it from a copy, or save the intact "
            "items with its method undamaged(), and check the disk"
        )


class ReplacedIndexError(HashingError, OSError):
    """The folder of an open index was removed, or holds another index now."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"the index {path} {reason}; open it again")


class StorageError(HashingError, OSError):
    """A write failed, for example on a full disk; earlier data is unchanged."""


class ServerError(HashingError, ConnectionError):
    """A server is unavailable or refused a request."""


class MissingExtraError(HashingError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(
            f"this needs the extra '{extra}', which is not installed; "
            f"run: pip install 'orbithash[{extra}]'"
        )
