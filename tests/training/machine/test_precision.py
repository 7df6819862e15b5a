import pytest

from orbithash.errors import InputError
from orbithash.training.machine import precision
from orbithash.training.machine.precision import check_precision, why_not


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "a trial ended with SIGILL"),
        ("raise RuntimeError('no such thing')", "a trial failed: RuntimeError: no such thing"),
        ("import sys; sys.exit(sys.argv[1] != 'cpu')", None),
    ],
)
def test_a_trial_that_ends_badly_is_survived_and_told(program, reason, tmp_path):
    script = tmp_path / "trial.py"
    script.write_text(program)
    assert why_not("cpu", script=script) == reason


def test_a_precision_that_does_not_work_here_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "why_not", lambda device: "a trial ended with SIGILL")
    check_precision("float32", "cpu")
    with pytest.raises(InputError, match="bfloat16 does not work on cpu here"):
        check_precision("bfloat16", "cpu")


def test_the_real_trial_comes_to_a_verdict():
    reason = why_not("cpu")
    assert reason is None or reason.startswith("a trial")
