import numpy as np

from orbithash.hashers import RandomHyperplanes


def test_the_share_of_differing_bits_is_proportional_to_the_angle():
    angles = np.array([0, 0.1, 0.5, 0.9]) * np.pi
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    bits = RandomHyperplanes(n_bits=20_000, center=False, random_state=0).fit_transform(X)
    np.testing.assert_allclose((bits != bits[0]).mean(axis=1), angles / np.pi, atol=0.02)


def test_centring_balances_the_bits_of_nonnegative_features():
    X = np.random.default_rng(0).random((500, 30))
    shares = [
        RandomHyperplanes(n_bits=64, center=center, random_state=0).fit_transform(X).mean(axis=0)
        for center in (True, False)
    ]
    centred, through_origin = (np.abs(share - 0.5).mean() for share in shares)
    assert centred < 0.05 < through_origin
