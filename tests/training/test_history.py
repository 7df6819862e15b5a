import sys

import pytest
from orbithash.training.history import tensorboard_to

from orbithash.errors import MissingExtraError
from orbithash.training import Epoch


def test_tensorboard_reads_every_figure_once_even_after_a_restart(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    epochs = [
        Epoch(number=number, loss=2.0 - number, learning_rate=0.1, validation_map=score)
        for number, score in ((0, None), (1, 0.5))
    ]
    for told in (epochs[:1], epochs):  # stopped after the first, and gone on
        write = tensorboard_to(tmp_path)
        for epoch in told:
            write(epoch)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 2.0), (1, 1.0)]
    assert [event.step for event in events.Scalars("validation_map")] == [1]


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[tensorboard\]'"):
        tensorboard_to(tmp_path)
