import numpy as np
import pytest
import torch

from coloured_images import coloured
from orbithash.data import Vectors
from orbithash.encoders import Encoder, FeatureEncoder
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.networks import FeatureHead, HashingNetwork, SmallCNN

VECTORS = np.random.default_rng(0).standard_normal((60, 12)).astype(np.float32)
LABELS = np.arange(60) % 4


def test_double_precision_gets_the_codes_of_single():
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS))
    np.testing.assert_array_equal(
        encoder.encode(VECTORS), encoder.encode(VECTORS.astype(np.float64))
    )


@pytest.mark.parametrize(
    "wrong",
    [VECTORS[:, :5], VECTORS[0], LABELS, np.full((2, 12), np.nan, dtype=np.float32)],
    ids=["too narrow", "one vector", "integers", "NaN"],
)
def test_vectors_that_do_not_fit_are_refused(wrong):
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS))
    with pytest.raises(InputError):
        encoder.encode(wrong)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return FeatureEncoder(FeatureHead(12, 10, hidden=0))


def test_an_encoder_of_features_fulfils_the_protocol(encoder):
    assert isinstance(encoder, Encoder)
    assert not encoder.takes_images
    assert (encoder.training, encoder.history) == (None, ())
    assert encoder.to("cpu") is encoder


def test_batches_of_rows_are_embedded_one_after_the_other(encoder):
    done = []
    rows = [np.array([5, 3]), np.array([], dtype=np.int64), np.arange(60)]
    batches = list(
        encoder.embed_batches(Vectors(VECTORS), rows, lambda n, total: done.append((n, total)))
    )
    assert done == [(2, 62), (2, 62), (62, 62)]
    np.testing.assert_array_equal(batches[0].rows, [5, 3])
    assert batches[1].codes.shape == (0, 2)
    np.testing.assert_array_equal(batches[2].codes, encoder.encode(VECTORS))
    assert not any(batch.unreadable for batch in batches)


def test_images_are_no_features(encoder, tmp_path):
    with pytest.raises(InputError, match="encodes features of 12 numbers, not images"):
        list(encoder.embed_batches(coloured(tmp_path), [np.arange(3)]))


def test_queries_are_vectors_and_rows_of_files(encoder, tmp_path):
    np.savez(tmp_path / "some.npz", features=VECTORS[:2])
    np.savez(tmp_path / "named.npz", features=VECTORS[2:4], paths=np.array(["a.jpg", "b.jpg"]))
    files = [tmp_path / "some.npz", str(tmp_path / "named.npz")]
    names, embeddings = encoder.embed_queries([*files, VECTORS[4], VECTORS[5:7]])
    some = tmp_path / "some.npz"
    assert names == [f"{some} row 0", f"{some} row 1", "a.jpg", "b.jpg", *["vector"] * 3]
    np.testing.assert_allclose(embeddings, encoder.embed(VECTORS[:7]), rtol=1e-6)
    assert encoder.embed_queries([])[1].shape == (0, 10)
    with pytest.raises(InputError, match=r"instead of cat\.jpg give an \.npz"):
        encoder.embed_queries(["cat.jpg"])


def test_small_images_are_the_input_of_a_small_network():
    torch.manual_seed(0)
    encoder = FeatureEncoder(HashingNetwork(SmallCNN(), 8), (1, 4, 3))
    images = VECTORS.reshape(60, 1, 4, 3)
    assert encoder.n_features == 12
    assert encoder.encode(images).shape == (60, 1)
    with pytest.raises(InputError, match=r"takes floats of shape \(n, 1, 4, 3\)"):
        encoder.encode(VECTORS)


def test_a_hasher_takes_small_images_as_their_pixels():
    encoder = FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(VECTORS))
    np.testing.assert_array_equal(
        encoder.encode(VECTORS.reshape(60, 1, 4, 3)), encoder.encode(VECTORS)
    )
