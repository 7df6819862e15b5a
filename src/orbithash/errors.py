"""Every error we raise on purpose.

HashingError
├── InputError            (ValueError)    what was given cannot be used: a label, an array, a file
│   ├── CodeLengthError                   codes of different lengths were compared
│   ├── UnreadableImageError              an image file is missing, damaged or no image
│   ├── DivergedError                     a loss became infinite or no number in training
│   ├── UnknownIdError                    an index holds no item with this id
│   ├── IdInUseError                      an item was added under the id of another
│   ├── NoIdsLeftError                    an index holds the largest id there is
│   └── DamagedIndexError                 an index cannot be read as it was written
├── StorageError          (OSError)       something could not be written, as on a full disk
├── ServerError      (ConnectionError)    a server is away, or failed at what was asked of it
└── MissingExtraError     (ImportError)   an optional dependency is not installed
"""

from pathlib import Path


class HashingError(Exception):
    """Base of all errors of this library."""


class InputError(HashingError, ValueError):
    """What was given cannot be used; the message says what would be."""


class DivergedError(InputError):
    """A loss became infinite or no number: these settings cannot train."""


class CodeLengthError(InputError):
    """Two sets of codes disagree on the number of bytes."""

    def __init__(self, name: str, *, got: int, expected: int, n_bits: int) -> None:
        super().__init__(
            f"{name} codes have {got} bytes where {n_bits} bits need {expected}; "
            "encode queries and database with the same encoder and pass its number of bits"
        )


class UnreadableImageError(InputError):
    """An image file cannot be read; whoever reads many may skip it and go on."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}; repair or remove the file")
        self.path, self.reason = path, reason


class UnknownIdError(InputError):
    """An index holds no item with this id."""

    def __init__(self, identifier: int) -> None:
        super().__init__(f"there is no item with id {identifier}; ids are shown by search")


class IdInUseError(InputError):
    """An item was added under an id that another one has."""

    def __init__(self, identifier: int) -> None:
        super().__init__(
            f"id {identifier} is stored already; give another, or use update to replace it"
        )


class NoIdsLeftError(InputError):
    """New items would need ids above the largest that there is."""

    def __init__(self) -> None:
        super().__init__(
            "there are no ids left behind the largest one in use; index into a new place"
        )


class DamagedIndexError(InputError):
    """A file of an index is not what was written: truncated, overwritten, or with bits flipped."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the index {path} is damaged: {reason}; restore it from a copy, or save what is whole "
            "with its method undamaged, and have the disk checked"
        )


class StorageError(HashingError, OSError):
    """Something could not be written, as on a full disk; what was there before still is."""


class ServerError(HashingError, ConnectionError):
    """A server is away, or failed at what was asked of it."""


class MissingExtraError(HashingError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(
            f"this needs the extra '{extra}', which is not installed; "
            f"run: pip install 'orbithash[{extra}]'"
        )
