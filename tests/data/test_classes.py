import numpy as np
import pytest

from orbithash.data import LabelledFeatures, Split
from orbithash.data.classes import choose_held_out, seen_split, unseen_rows
from orbithash.errors import InputError

NAMES = ("wren", "gull", "crow", "swan", "tern")


def birds(*, several=False, names=NAMES):
    labels = np.arange(20) % 5
    if several:
        labels = np.eye(5, dtype=bool)[labels]
        labels[::3, 0] = True  # wrens are on many images
    split = Split(train=np.arange(12), query=np.arange(12, 16), database=np.arange(12))
    return LabelledFeatures(np.zeros((20, 2), np.float32), labels, split, classes=names)


def test_a_share_of_the_classes_is_drawn_by_the_seed():
    drawn = [choose_held_out(birds(), 0.5, seed=seed) for seed in range(20)]
    assert {len(each) for each in drawn} == {2}
    assert len(set(drawn)) > 5
    assert drawn[3] == choose_held_out(birds(), 0.5, seed=3)
    assert set().union(*drawn) == set(NAMES)
    assert len(choose_held_out(birds(), 0.01, seed=0)) == 1


def test_classes_are_named_or_numbered():
    assert choose_held_out(birds(), ["swan", "gull"], seed=0) == ("gull", "swan")
    assert choose_held_out(birds(), [3, 1], seed=0) == ("gull", "swan")
    assert choose_held_out(birds(), "swan", seed=0) == ("swan",)
    assert choose_held_out(birds(names=None), [3, "1"], seed=0) == ("1", "3")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (0.0, "share of classes to hold out is 0; give a number between 0 and 1"),
        (1, "share of classes to hold out is 1; give a number between 0 and 1"),
        (["swan", "Swans"], "there is no class 'Swans' to hold out; did you mean swan"),
        ([7], "there is no class '7' to hold out"),
        ([], "no classes to hold out"),
    ],
)
def test_classes_that_cannot_be_held_out_are_refused(wanted, message):
    with pytest.raises(InputError, match=message):
        choose_held_out(birds(), wanted, seed=0)


@pytest.mark.parametrize("several", [False, True])
def test_only_images_without_a_held_out_label_train(several):
    data, held_out = birds(several=several), ("wren", "crow")
    labels = data.labels if several else np.eye(5, dtype=bool)[data.labels]
    expected = [not (labels[row, 0] or labels[row, 2]) for row in range(20)]
    assert (~unseen_rows(data, held_out)).tolist() == expected
    split = seen_split(data, data.split, held_out)
    assert split.train.tolist() == [row for row in range(12) if expected[row]]
    assert split.database.tolist() == list(range(12))
    assert split.query.tolist() == list(range(12, 16))


def test_validation_images_are_of_seen_classes_too():
    split = Split(train=np.arange(10), validation=np.arange(10, 20))
    assert seen_split(birds(), split, ("tern",)).validation.tolist() == [
        10,
        11,
        12,
        13,
        15,
        16,
        17,
        18,
    ]


def test_two_classes_are_left_to_train_on():
    data = birds()
    with pytest.raises(InputError, match="holding out 4 of 5 classes leaves only 1 with"):
        seen_split(data, data.split, NAMES[:4])
