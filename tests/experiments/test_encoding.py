import numpy as np
import torch

from orbithash.data.benchmarks import DATASETS
from orbithash.experiments.encoding import DeepSettings, deep_codes, reproducible, shallow_codes

DIGITS = DATASETS["digits"]()
SETTINGS = DeepSettings(margin=2.0, learning_rate=0.01, epochs=2, images_per_class=20)


def test_every_image_gets_a_code_of_the_right_length():
    assert deep_codes(DIGITS, "order-aware", 12, SETTINGS, seed=0).shape == (1797, 2)
    assert shallow_codes(DIGITS, "lsh", 12, seed=0).shape == (1797, 2)


def test_the_seed_alone_decides_the_codes():
    first = deep_codes(DIGITS, "triplet", 16, SETTINGS, seed=1)
    torch.rand(1)  # what others draw in between must not matter
    assert np.array_equal(first, deep_codes(DIGITS, "triplet", 16, SETTINGS, seed=1))
    assert not np.array_equal(first, deep_codes(DIGITS, "triplet", 16, SETTINGS, seed=2))


def test_training_leaves_torchs_threads_and_generator_as_they_were():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with reproducible(seed=5):
        torch.rand(3)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
