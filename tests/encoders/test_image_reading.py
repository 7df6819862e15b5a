import threading
from pathlib import Path

import pytest

from orbithash.encoders.image_reading import read_ahead
from orbithash.errors import UnreadableImageError

FILES = [Path(str(number)) for number in range(20)]


def test_contents_come_in_the_order_of_the_files():
    contents = read_ahead(FILES, lambda file: int(file.name), n_threads=3, n_ahead=5)
    assert list(contents) == list(range(20))


def test_a_file_that_cannot_be_read_gives_its_error_and_the_next_ones_follow():
    def read(file: Path) -> str:
        if file.name == "1":
            raise UnreadableImageError(file, "torn")
        return file.name

    first, second, third = read_ahead(FILES[:3], read, n_threads=2, n_ahead=2)
    assert (first, second.reason, third) == ("0", "torn", "2")


def test_no_more_is_read_than_asked_for():
    begun = []
    contents = read_ahead(FILES, lambda file: begun.append(file), n_threads=2, n_ahead=4)
    next(contents)
    contents.close()
    assert len(begun) <= 5


def test_other_errors_end_the_reading_and_its_threads():
    with pytest.raises(ZeroDivisionError):
        list(read_ahead(FILES, lambda file: 1 / 0, n_threads=2, n_ahead=4))
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]
