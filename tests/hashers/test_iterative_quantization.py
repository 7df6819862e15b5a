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


def test_codes_lie_nearer_to_the_components_than_their_plain_signs():
    X = skewed_features()
    components = PrincipalComponentSigns(n_bits=12).fit(X).pca_.transform(X)
    itq = IterativeQuantization(n_bits=12, random_state=0).fit(X)

    def angle(rotation):
        rotated = components @ rotation
        return np.abs(rotated).sum() / np.linalg.norm(rotated) / np.sqrt(rotated.size)

    assert angle(itq.rotation_) > 1.05 * angle(np.eye(12))


def skewed_features():
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, 20)) * np.geomspace(10, 0.1, 20)
