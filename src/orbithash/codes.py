"""Binary codes: how every other package passes them around.

embeddings  float (n, bits)       output of a network or a hasher, in [0, 1]
bits        bool  (n, bits)       embeddings > 0.5
codes       uint8 (n, bytes)      bits packed, the last byte padded with 0: stored and searched

Codes are compared with codes by Hamming distance, and with embeddings by asymmetric distance: the
sum of |embedding − bit| over the bits.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.errors import CodeLengthError, InputError

MIN_BITS, MAX_BITS = 4, 1024
GRID = 2**32  # asymmetric distances are multiples of 1/GRID, so that sums are exact in any order


def binarize(embeddings: ArrayLike) -> Bool[np.ndarray, "n bits"]:
    """Return the bits of embeddings: whether each value is above 0.5.

    >>> binarize(np.array([[0.9, 0.1, 0.5, 0.6]]))
    array([[ True, False, False,  True]])
    """
    embeddings = np.asarray(embeddings)
    if embeddings.ndim != 2 or not np.issubdtype(embeddings.dtype, np.floating):
        raise InputError(
            f"got embeddings of shape {embeddings.shape} and type {embeddings.dtype}; "
            "pass floats of shape (images, bits)"
        )
    check_n_bits(embeddings.shape[1])
    # In this form NaN fails too.
    if not np.all((embeddings >= 0) & (embeddings <= 1)):
        raise InputError(
            "got embeddings that are NaN or outside [0, 1]; apply the sigmoid, or map ±1 "
            "outputs by (x + 1) / 2"
        )
    return embeddings > 0.5


def pack(bits: ArrayLike) -> UInt8[np.ndarray, "n bytes"]:
    """Pack bits into codes, eight to a byte, the first bit most significant.

    >>> pack(np.array([[True, False, False, True]]))
    array([[144]], dtype=uint8)
    """
    bits = np.asarray(bits)
    if bits.ndim != 2 or bits.dtype != np.bool_:
        raise InputError(
            f"got bits of shape {bits.shape} and type {bits.dtype}; pass booleans of shape "
            "(images, bits), such as binarize(embeddings)"
        )
    check_n_bits(bits.shape[1])
    return np.packbits(bits, axis=1)


def unpack(codes: ArrayLike, n_bits: int) -> Bool[np.ndarray, "n bits"]:
    """Unpack codes into the bits that `pack` was given.

    >>> unpack(np.array([[144]], dtype=np.uint8), n_bits=4)
    array([[ True, False, False,  True]])
    """
    return np.unpackbits(as_codes(codes, n_bits), axis=1, count=n_bits).view(np.bool_)


def as_codes(codes: ArrayLike, n_bits: int, name: str = "the") -> UInt8[np.ndarray, "n bytes"]:
    """Return codes of `n_bits` bits as an array; raise if they are not valid codes.

    The numbers 0 to 255 in nested lists are bytes. `name` is their owner in messages.

    >>> as_codes([[144]], n_bits=4)
    array([[144]], dtype=uint8)
    """
    try:
        array = np.asarray(codes)
    except ValueError as error:
        raise InputError(f"got codes that are not an array ({error}); pass rows of bytes") from None
    untyped = not hasattr(codes, "dtype") and array.dtype.kind == "i" and array.size > 0
    if untyped and 0 <= array.min() <= array.max() <= 255:
        array = array.astype(np.uint8)
    check_codes(array, n_bits, name)
    return array


def check_codes(codes: np.ndarray, n_bits: int, name: str = "the") -> None:
    """Raise unless these are codes of `n_bits` bits; `name` is their owner in messages."""
    check_n_bits(n_bits)
    if codes.ndim != 2 or codes.dtype != np.uint8:
        raise InputError(
            f"got codes of shape {codes.shape} and type {codes.dtype}; pass uint8 of shape "
            "(images, bytes), such as pack(bits)"
        )
    expected = code_bytes(n_bits)
    if codes.shape[1] != expected:
        raise CodeLengthError(name, got=codes.shape[1], expected=expected, n_bits=n_bits)
    padding = 8 * expected - n_bits
    # A padding bit that is set would add to every distance without being one of the bits.
    if padding and np.any(codes[:, -1] & ((1 << padding) - 1)):
        raise InputError(
            f"got codes whose last {padding} bits are not 0, though {n_bits} bits leave them "
            "unused; pack them with pack(bits), or pass the number of bits they were packed from"
        )


def bit_weights(
    embeddings: ArrayLike,
) -> tuple[Int64[np.ndarray, "n bits"], Int64[np.ndarray, " n"]]:
    """Return what each differing bit adds to the asymmetric distance, and the least distance.

    The asymmetric distance of an embedding h and a code is the sum of |h − bit|. A code equal to
    h's own code has the least distance, and each bit that differs adds its weight |2h − 1|. Both
    are in units of 1/GRID, rounded once.

    >>> weights, least = bit_weights([[1.0, 0.75, 0.5, 0.0]])
    >>> weights / GRID, least / GRID
    (array([[1. , 0.5, 0. , 1. ]]), array([0.75]))
    """
    binarize(embeddings)  # raises if they are no embeddings
    # Other memory layouts are other types to numba, which would compile the search again.
    exact = np.asarray(embeddings, dtype=np.float64, order="C")
    weights = np.rint(np.abs(2 * exact - 1) * GRID).astype(np.int64)
    least = np.rint(np.minimum(exact, 1 - exact) * GRID).astype(np.int64).sum(axis=1)
    return weights, least


def asymmetric_distances(
    embeddings: ArrayLike, codes: UInt8[np.ndarray, "m bytes"]
) -> Float64[np.ndarray, "n m"]:
    """Return the asymmetric distance of each pair of an embedding and a code.

    >>> asymmetric_distances([[1.0, 0.75, 0.5, 0.0]], np.array([[0b11000000], [0]], np.uint8))
    array([[0.75, 2.25]])
    """
    own = binarize(embeddings)
    weights, least = bit_weights(embeddings)
    # Weights of the query's ones are counted for every code, and taken back where the code agrees.
    signed = np.where(own, -weights, weights).astype(np.float64)
    bits = unpack(codes, own.shape[1]).astype(np.float64)
    # All products and sums are whole numbers below 2^53: exact, in whatever order they are added.
    whole = signed @ bits.T + (least + (weights * own).sum(axis=1))[:, None]
    return np.asarray(whole / GRID)


def check_n_bits(n_bits: int) -> None:
    """Raise unless this is a valid number of bits."""
    if not isinstance(n_bits, int | np.integer) or not MIN_BITS <= n_bits <= MAX_BITS:
        raise InputError(
            f"got {n_bits!r} bits; codes have {MIN_BITS} to {MAX_BITS}: give a whole number "
            "in between"
        )


def code_bytes(n_bits: int) -> int:
    """Return the number of bytes of a code.

    >>> code_bytes(9)
    2
    """
    return -(-n_bits // 8)
