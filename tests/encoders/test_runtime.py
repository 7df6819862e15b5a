import pytest
from torch import nn

from orbithash.encoders import runtime
from orbithash.encoders.runtime import choose_runtime, run_by
from orbithash.errors import InputError


@pytest.mark.parametrize(
    ("installed", "n_images", "expected"),
    [(True, 999, "torch"), (True, 1000, "onnxruntime"), (False, 100_000, "torch")],
)
def test_onnxruntime_runs_many_images_where_it_is_installed(
    installed, n_images, expected, monkeypatch
):
    monkeypatch.setattr(runtime, "is_installed", lambda: installed)
    assert choose_runtime(nn.Linear(2, 2), n_images=n_images) == expected


def test_another_device_than_the_processor_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(runtime, "is_installed", lambda: True)
    assert choose_runtime(nn.Linear(2, 2, device="meta"), n_images=100_000) == "torch"


def test_an_unknown_runtime_is_refused():
    with pytest.raises(InputError, match="no runtime 'tpu'; choose from torch, onnxruntime"):
        run_by("tpu", nn.Linear(2, 2), side=4)
