from orbithash.training.unreadable_log import UnreadableList

from orbithash.training import Processes


class TwoProcesses(Processes):
    """The first of two; the other has met two files."""

    def gather_objects(self, value):
        return [value, {"b.jpg": "missing", "c.jpg": "torn"}]


def test_a_line_that_was_not_finished_is_not_mixed_up_with_the_next(tmp_path):
    file = tmp_path / "unreadable.txt"
    file.write_text("a.jpg\ttorn\nb.j")
    UnreadableList(file)("c.jpg", "missing")
    assert file.read_text() == "a.jpg\ttorn\nc.jpg\tmissing\n"


def test_what_any_process_has_met_is_written_once_by_the_first(tmp_path):
    file = tmp_path / "unreadable.txt"
    second = UnreadableList(file, Processes(1, 2))
    second("b.jpg", "missing")
    assert not file.exists()
    first = UnreadableList(file, TwoProcesses(0, 2))
    first("a.jpg", "torn")
    first("b.jpg", "missing")
    first.join()
    assert file.read_text() == "a.jpg\ttorn\nb.jpg\tmissing\nc.jpg\ttorn\n"
    assert len(first.reasons) == 3
