import numpy as np

from orbithash.hashers import SpectralHashing
from orbithash.hashers.spectral import smoothest_waves


def test_selected_waves_have_the_smallest_eigenvalues():
    extents = np.array([3.1, 0.4, 1.7, 1.1])
    components, half_waves = smoothest_waves(extents, n_bits=11)
    eigenvalues = {
        (component, k): 1 - np.exp(-((0.1 * k * np.pi / extents[component]) ** 2) / 2)
        for component in range(4)
        for k in range(1, 12)
    }
    assert (
        list(zip(components, half_waves, strict=True))
        == sorted(eigenvalues, key=eigenvalues.__getitem__)[:11]
    )


def test_bits_of_one_dimensional_data_are_the_signs_of_cosines():
    # One half-wave changes sign in the middle; two change it at 1/4 and 3/4.
    position = np.linspace(0, 1, 401)
    hasher = SpectralHashing(n_bits=2, normalize=False)
    bits = hasher.fit_transform(position[:, None])
    sign_changes = [position[np.flatnonzero(np.diff(bit))] for bit in bits.T]
    np.testing.assert_allclose(sign_changes[0], [0.5], atol=0.005)
    np.testing.assert_allclose(sign_changes[1], [0.25, 0.75], atol=0.005)
