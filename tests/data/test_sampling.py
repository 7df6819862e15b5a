import numpy as np
import pytest

from orbithash.data import ClassBalancedBatches, ShuffledBatches, batches_by_labels
from orbithash.errors import InputError

LABELS = np.repeat(np.arange(6), [4, 9, 12, 30, 25, 20])  # classes of very different sizes


def test_every_image_of_a_balanced_batch_has_a_positive_and_a_negative():
    batches = ClassBalancedBatches(LABELS, classes_per_batch=3, images_per_class=5)
    for batch in batches(epoch=0):
        classes, counts = np.unique(LABELS[batch], return_counts=True)
        assert len(classes) == 3
        assert counts.tolist() == [5, 5, 5]


@pytest.mark.parametrize("images_per_class", [3, 4, 7])
def test_an_image_repeats_in_a_balanced_batch_only_if_its_class_is_too_small(
    images_per_class,
):
    sizes = np.bincount(LABELS)
    batches = ClassBalancedBatches(LABELS, classes_per_batch=3, images_per_class=images_per_class)
    for epoch in range(30):
        for batch in batches(epoch):
            for label in np.unique(LABELS[batch]):
                different = np.unique(batch[LABELS[batch] == label])
                assert len(different) == min(sizes[label], images_per_class)


def test_all_images_of_a_class_are_drawn_before_one_repeats():
    labels = np.repeat([0, 1], [10, 15])
    batches = ClassBalancedBatches(labels, classes_per_batch=2, images_per_class=5)
    first, second = list(batches(0))[:2]
    shown = np.concatenate([first, second])
    assert len(np.unique(shown[labels[shown] == 0])) == 10


def test_an_epoch_of_balanced_batches_is_as_long_as_one_pass_over_the_images():
    batches = ClassBalancedBatches(LABELS, classes_per_batch=5, images_per_class=4)
    assert len(list(batches(0))) == len(batches) == 5


def test_shuffled_batches_contain_each_image_once_per_epoch():
    shown = np.concatenate(list(ShuffledBatches(n_images=100, batch_size=20)(epoch=4)))
    assert np.array_equal(np.sort(shown), np.arange(100))


def test_an_incomplete_last_batch_is_dropped():
    assert [len(batch) for batch in ShuffledBatches(n_images=10, batch_size=4)(0)] == [4, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: ClassBalancedBatches(LABELS, 3, 5, seed=seed),
        lambda seed: ShuffledBatches(100, 20, seed=seed),
    ],
)
def test_batches_depend_only_on_seed_and_epoch(make):
    def epoch(seed: int, number: int) -> np.ndarray:
        return np.array(list(make(seed)(number)))

    assert np.array_equal(epoch(seed=1, number=2), epoch(seed=1, number=2))
    assert not np.array_equal(epoch(seed=1, number=2), epoch(seed=1, number=3))
    assert not np.array_equal(epoch(seed=1, number=2), epoch(seed=2, number=2))


def test_batches_that_cannot_hold_a_triplet_are_refused():
    with pytest.raises(InputError, match="at least 2 classes × 2 images"):
        ClassBalancedBatches(LABELS, classes_per_batch=1, images_per_class=5)
    with pytest.raises(InputError, match="at least 2 classes × 2 images"):
        ClassBalancedBatches(LABELS, classes_per_batch=3, images_per_class=1)
    with pytest.raises(InputError, match="from 6 classes"):
        ClassBalancedBatches(LABELS, classes_per_batch=7, images_per_class=2)
    with pytest.raises(InputError, match="batch_size=11 for 10 images"):
        ShuffledBatches(n_images=10, batch_size=11)


def test_multi_label_data_needs_shuffled_batches():
    with pytest.raises(InputError, match="use ShuffledBatches"):
        ClassBalancedBatches(np.eye(6, dtype=np.int64), 2, 2)


@pytest.mark.parametrize(
    ("labels", "batch"),
    [
        (np.arange(4000) % 200, (100, 5)),
        (np.arange(4000) % 10, (10, 50)),  # few classes: more images of each
        (np.arange(80) % 10, (4, 5)),  # few images: a quarter of them
    ],
)
def test_single_labels_give_class_balanced_batches(labels, batch):
    batches = batches_by_labels(labels, batch_size=500, images_per_class=5, seed=0)
    assert (batches.classes_per_batch, batches.images_per_class) == batch


def test_several_labels_give_shuffled_batches():
    labels = np.ones((4000, 3), dtype=bool)
    batches = batches_by_labels(labels, batch_size=500, images_per_class=5, seed=0)
    assert isinstance(batches, ShuffledBatches)
    assert batches.batch_size == 500


@pytest.mark.parametrize(("n", "batch_size"), [(8, 500), (40, 2), (3, 500)])
def test_the_smallest_batch_has_the_size_of_a_triplet(n, batch_size):
    labels = np.ones((n, 2), dtype=bool)
    batches = batches_by_labels(labels, batch_size=batch_size, images_per_class=2, seed=0)
    assert batches.batch_size == 3
