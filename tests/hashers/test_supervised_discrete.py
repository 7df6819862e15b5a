import numpy as np

from orbithash.hashers import SupervisedDiscreteHashing
from orbithash.hashers.supervised_discrete import descend_codes


def test_descent_ends_where_no_single_bit_improves_the_objective():
    B, W, Q = random_problem()

    def value(codes):
        return ((codes @ W) ** 2).sum(axis=1) - 2 * (codes * Q).sum(axis=1)

    after = descend_codes(B, W, Q, n_cycles=100)
    assert (value(after) <= value(B) + 1e-9).all()
    for bit in range(B.shape[1]):
        flipped = after.copy()
        flipped[:, bit] *= -1
        assert (value(after) <= value(flipped) + 1e-9).all()


def test_a_single_cycle_equals_a_loop_over_images_and_bits():
    B, W, Q = random_problem()
    expected = B.copy()
    for image in range(len(B)):
        for bit in range(B.shape[1]):
            others = np.delete(np.arange(B.shape[1]), bit)
            contribution = sum(expected[image, other] * (W[other] @ W[bit]) for other in others)
            expected[image, bit] = 1 if Q[image, bit] - contribution > 0 else -1
    np.testing.assert_array_equal(descend_codes(B, W, Q, n_cycles=1), expected)


def test_nearest_codes_of_new_images_have_their_class():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 5
    X = 2 * rng.standard_normal((5, 16))[y] + rng.standard_normal((400, 16))
    hasher = SupervisedDiscreteHashing(n_bits=16, random_state=0).fit(X[:300], y[:300])
    train_bits, new_bits = hasher.transform(X[:300]), hasher.transform(X[300:])
    nearest = (new_bits[:, None] != train_bits).sum(axis=2).argmin(axis=1)
    assert (y[:300][nearest] == y[300:]).mean() > 0.95


def random_problem():
    rng = np.random.default_rng(0)
    B = rng.choice([-1.0, 1.0], (30, 6))
    return B, rng.standard_normal((6, 4)), rng.standard_normal((30, 6)) * 3
