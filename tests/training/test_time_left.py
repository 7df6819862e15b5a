"""The time left of several stages: within 30 % after the first tenth, and right after a resume."""

import io

import pytest
from rich.console import Console

from orbithash.encoders import Epoch
from orbithash.training.time_left import TimeLeft, training_bar


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("predicted", [(20.0, 10.0), (60.0, 30.0), (40.0, 5.0)])
def test_the_time_left_is_right_after_a_tenth_though_the_prediction_was_wrong(predicted):
    clock = Clock()
    left = TimeLeft(clock)
    left.add("features", 100, predicted[0], unit="images")
    left.add("head", 50, predicted[1], unit="epochs")
    # In truth an image takes 0.4 s and an epoch 0.2 s: 40 s, then 10 s.
    for done in range(101):
        clock.now = 0.4 * done
        left.report("features", done, 100, unit="images")
        if done >= 10:
            later = predicted[1]
            assert left.seconds() == pytest.approx(40 - clock.now + later, rel=0.05, abs=0.1)
    for done in range(51):
        clock.now = 40 + 0.2 * done
        left.report("head", done, 50, unit="epochs")
        if done >= 5:
            assert left.seconds() == pytest.approx(50 - clock.now, rel=0.3, abs=0.1)
    assert left.share_done() == pytest.approx(1.0)


def test_a_resumed_stage_is_timed_by_what_it_does_now():
    clock = Clock()
    left = TimeLeft(clock)
    left.add("head", 100, 7.0, unit="epochs")
    left.report("head", 60, 100, unit="epochs")  # done by an earlier command
    for done in range(61, 101):
        clock.now = 0.5 * (done - 60)
        left.report("head", done, 100, unit="epochs")
        if done >= 66:
            assert left.seconds() == pytest.approx(0.5 * (100 - done), rel=0.01)


def test_what_precedes_the_first_item_does_not_count_as_its_speed():
    clock = Clock()
    left = TimeLeft(clock)
    left.add("features", 100, 60.0, unit="images")
    left.report("features", 0, 100, unit="images")
    for done in range(1, 101):
        clock.now = 10 + 0.4 * done  # ten seconds to export the network
        left.report("features", done, 100, unit="images")
        if done >= 10:
            assert left.seconds() == pytest.approx(50 - clock.now, rel=0.01, abs=0.01)


def test_a_later_stage_ends_the_earlier_ones():
    left = TimeLeft(Clock())
    left.add("features", 100, 10.0, unit="images")
    left.add("head", 50, 10.0, unit="epochs")
    left.report("head", 0, 50, unit="epochs")  # the features were computed before
    assert left.seconds() == pytest.approx(10.0)


def test_no_bar_appears_before_the_first_report():
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    with training_bar(console, TimeLeft(Clock())) as stage_hooks:
        stage_hooks("head", 10)
    assert output.getvalue().strip() == ""


def test_the_bar_shows_the_stage_its_amount_and_the_time_left():
    output, clock = io.StringIO(), Clock()
    left = TimeLeft(clock)
    left.add("head", 10, 100.0, unit="epochs")
    with training_bar(Console(file=output, force_terminal=True, width=100), left) as stage_hooks:
        hooks = stage_hooks("head", 10)
        hooks.after_step(0.0, 0.5)
        clock.now = 12.0
        hooks.after_epoch(Epoch(0, loss=0.5, learning_rate=0.1))
        clock.now = 24.0
        hooks.after_epoch(Epoch(1, loss=0.25, learning_rate=0.1, validation_map=0.5))
    shown = output.getvalue()
    assert "2.0/10 epochs" in shown
    assert "1:36 left" in shown
    assert "loss 0.25 · balance 0.00 · MAP 0.500 (best 0.500)" in shown
