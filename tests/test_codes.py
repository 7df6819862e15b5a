import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from orbithash.codes import (
    as_codes,
    asymmetric_distances,
    binarize,
    bit_weights,
    check_codes,
    pack,
    unpack,
)
from orbithash.errors import CodeLengthError, InputError

bits_of_any_length = st.tuples(st.integers(0, 5), st.integers(4, 1024)).flatmap(
    lambda shape: arrays(bool, shape)
)


@settings(deadline=None)
@given(bits_of_any_length)
def test_unpacking_gives_back_the_bits_that_were_packed(bits):
    codes = pack(bits)
    assert codes.shape == (len(bits), -(-bits.shape[1] // 8))
    np.testing.assert_array_equal(unpack(codes, bits.shape[1]), bits)


def test_first_bit_is_most_significant_and_padding_is_zero():
    bits = np.zeros((1, 9), dtype=bool)
    bits[0, [0, 8]] = True
    np.testing.assert_array_equal(pack(bits), [[0b10000000, 0b10000000]])


def test_one_half_is_not_a_one():
    np.testing.assert_array_equal(
        binarize(np.array([[0.5, 0.5001, 0.0, 1.0]])), [[False, True, False, True]]
    )


@pytest.mark.parametrize("bad", [np.nan, -0.01, 1.01, np.inf])
def test_embeddings_outside_the_unit_interval_are_refused(bad):
    embeddings = np.full((2, 8), 0.3)
    embeddings[1, 3] = bad
    with pytest.raises(InputError, match=r"NaN or outside \[0, 1\]"):
        binarize(embeddings)


@pytest.mark.parametrize("embeddings", [np.zeros(8), np.zeros((2, 8), dtype=int)])
def test_embeddings_that_are_not_a_matrix_of_floats_are_refused(embeddings):
    with pytest.raises(InputError, match=r"floats of shape \(images, bits\)"):
        binarize(embeddings)


@pytest.mark.parametrize("n_bits", [3, 1025])
def test_too_few_or_too_many_bits_are_refused(n_bits):
    with pytest.raises(InputError, match="4 to 1024"):
        pack(np.zeros((2, n_bits), dtype=bool))


def test_bits_that_are_not_boolean_are_refused():
    with pytest.raises(InputError, match="booleans"):
        pack(np.array([[0, 1, 2, 3]]))


def test_codes_with_too_many_bytes_are_refused():
    with pytest.raises(CodeLengthError, match="the codes have 3 bytes where 16 bits need 2"):
        check_codes(np.zeros((2, 3), dtype=np.uint8), 16)


def test_padding_bits_that_are_set_are_refused():
    with pytest.raises(InputError, match="last 6 bits are not 0"):
        check_codes(np.array([[0, 0b00100000]], dtype=np.uint8), 10)


@pytest.mark.parametrize("codes", [np.zeros((2, 2)), np.zeros(2, dtype=np.uint8)])
def test_codes_of_another_type_or_shape_are_refused(codes):
    with pytest.raises(InputError, match=r"uint8 of shape \(images, bytes\)"):
        check_codes(codes, 16)


def test_lists_are_accepted_wherever_arrays_are():
    bits = binarize([[0.9, 0.1, 0.2, 0.8]])
    codes = pack(bits.tolist())
    np.testing.assert_array_equal(unpack(codes.tolist(), 4), bits)
    assert as_codes([[144]], 4).dtype == np.uint8


@pytest.mark.parametrize("codes", [[[1, 256]], [[-1, 0]], [[True, False]], [[1, 2], [3]]])
def test_lists_that_do_not_hold_bytes_are_refused(codes):
    with pytest.raises(InputError, match="got codes"):
        as_codes(codes, 16)


def test_asymmetric_distance_is_the_sum_of_absolute_differences():
    rng = np.random.default_rng(0)
    for n_bits in (4, 9, 64, 1024):
        embeddings = rng.random((5, n_bits)).astype(np.float32)
        bits = rng.random((7, n_bits)) > 0.5
        expected = np.abs(embeddings.astype(float)[:, None] - bits[None]).sum(axis=2)
        distances = asymmetric_distances(embeddings, pack(bits))
        assert np.abs(distances - expected).max() <= n_bits * 2**-32
        assert np.array_equal(distances * 2**32, np.rint(distances * 2**32))


def test_asymmetric_distance_of_bits_is_their_hamming_distance():
    bits = np.random.default_rng(1).random((6, 20)) > 0.5
    expected = (bits[:, None] != bits[None]).sum(axis=2)
    assert np.array_equal(asymmetric_distances(bits.astype(float), pack(bits)), expected)


@pytest.mark.parametrize("value", [np.nan, -0.1, 1.5, np.inf])
def test_embeddings_outside_zero_and_one_have_no_weights(value):
    with pytest.raises(InputError, match=r"NaN or outside \[0, 1\]"):
        bit_weights(np.full((1, 8), value))
