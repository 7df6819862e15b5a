import numpy as np

from orbithash.hashers import IterativeQuantization, PrincipalComponentSigns


def test_every_rotation_lowers_the_quantization_error():
    hasher = IterativeQuantization(n_bits=12, n_iter=30, random_state=0).fit(skewed_features())
    errors = hasher.quantization_errors_
    assert (np.diff(errors) <= 1e-9).all()
    assert errors[-1] < errors[0]


def test_projections_are_rotated_not_stretched():
    hasher = IterativeQuantization(n_bits=12, random_state=0).fit(skewed_features())
    np.testing.assert_allclose(hasher.rotation_.T @ hasher.rotation_, np.eye(12), atol=1e-10)


def test_rotated_components_are_closer_to_their_codes_than_unrotated_ones():
    X = skewed_features()
    components = PrincipalComponentSigns(n_bits=12).fit(X).pca_.transform(X)
    itq = IterativeQuantization(n_bits=12, random_state=0).fit(X)

    def cosine(rotation):
        rotated = components @ rotation
        return np.abs(rotated).sum() / np.linalg.norm(rotated) / np.sqrt(rotated.size)

    assert cosine(itq.rotation_) > 1.05 * cosine(np.eye(12))


def skewed_features():
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, 20)) * np.geomspace(10, 0.1, 20)
