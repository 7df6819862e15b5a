import sys

import pytest

from orbithash.encoders import Epoch
from orbithash.errors import MissingExtraError
from orbithash.training import Processes
from orbithash.training.hooks import UnreadableLog, tensorboard_writer


def test_tensorboard_reads_every_figure_once_even_after_a_restart(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    epochs = [
        Epoch(number=number, loss=2.0 - number, learning_rate=0.1, validation_map=score)
        for number, score in ((0, None), (1, 0.5))
    ]
    for told in (epochs[:1], epochs):  # stopped after the first, and gone on
        with tensorboard_writer(tmp_path) as write:
            for epoch in told:
                write(epoch)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 2.0), (1, 1.0)]
    assert [event.step for event in events.Scalars("validation_map")] == [1]


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[tensorboard\]'"),
        tensorboard_writer(tmp_path),
    ):
        pass


class TwoProcesses(Processes):
    """The first of two; the other has met two files."""

    def gather_objects(self, value):
        return [value, {"b.jpg": "missing", "c.jpg": "torn"}]


def test_a_line_that_was_not_finished_is_not_mixed_up_with_the_next(tmp_path):
    file = tmp_path / "unreadable.txt"
    file.write_text("a.jpg\ttorn\nb.j")
    UnreadableLog(file)("c.jpg", "missing")
    assert file.read_text() == "a.jpg\ttorn\nc.jpg\tmissing\n"


def test_what_any_process_has_met_is_written_once_by_the_first(tmp_path):
    file = tmp_path / "unreadable.txt"
    second = UnreadableLog(file, Processes(1, 2))
    second("b.jpg", "missing")
    assert not file.exists()
    first = UnreadableLog(file, TwoProcesses(0, 2))
    first("a.jpg", "torn")
    first("b.jpg", "missing")
    first.gather()
    assert file.read_text() == "a.jpg\ttorn\nb.jpg\tmissing\nc.jpg\ttorn\n"
    assert len(first.reasons) == 3
