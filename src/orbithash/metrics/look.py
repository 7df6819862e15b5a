"""Look: whether the nearest codes are those of the images that look most alike.

A teacher decides how alike two images look: the features of a network, compared by the cosine of
their differences from the mean of the database. Labels play no part.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Float64, Int64, Shaped, UInt8, UInt16
from numpy.typing import ArrayLike

from orbithash.codes import binarize, bit_weights, pack
from orbithash.errors import InputError
from orbithash.kernels.hamming import hamming_distances
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.search.asymmetric import weighted_distances

N_NEAREST = 10  # neighbours that are compared
CHUNK_PAIRS = 1 << 21  # of queries and codes whose distances are in memory, some 20 bytes each
TILE_ROWS = 1024  # queries and items whose cosines are computed at once
TILE_NUMBERS = 1 << 22  # of features that are in memory in double precision, at most
GRID = 2**30  # cosines are rounded to multiples of 1/GRID, so that equal ones are exactly equal
INDEX_BITS = 31  # lowest bits of a ranking key
LAST = np.iinfo(np.int64).max  # key of an item that is left out


def look_score(
    query_codes: UInt8[np.ndarray, "queries bytes"],
    database_codes: UInt8[np.ndarray, "database bytes"],
    nearest: Int64[np.ndarray, "queries k"],
    *,
    query_embeddings: Float[np.ndarray, "queries bits"] | None = None,
    own: Int64[np.ndarray, " queries"] | None = None,
) -> Float64[np.ndarray, " queries"]:
    """Return the share of each query's nearest k items that is among its k nearest by code.

    `nearest` are the nearest by features, from `nearest_by_cosine`. Codes are compared by Hamming
    distance; with embeddings of the queries, by asymmetric distance. The share is the mean over all
    orders of the ties: an item of a tie that rank k cuts counts by the share of the tie that is
    within rank k. With `own`, the position of each query in the database, no query finds itself.

    Of three items, two are nearest by features. By code one of them is first, and the other one
    has an equal chance of being second:

    >>> codes = np.array([[0b10000000], [0b11000000], [0b10100000]], dtype=np.uint8)
    >>> look_score(np.array([[0]], dtype=np.uint8), codes, np.array([[2, 0]]))
    array([0.75])
    """
    shares = np.empty(len(query_codes))
    words = as_words(database_codes)
    for chunk in slices(len(query_codes), CHUNK_PAIRS // len(database_codes)):
        distances: UInt16[np.ndarray, "chunk database"] | Int64[np.ndarray, "chunk database"]
        if query_embeddings is None:
            distances = hamming_distances(query_codes[chunk], database_codes)
        else:
            weights, _ = bit_weights(query_embeddings[chunk])
            bits = binarize(query_embeddings[chunk])
            distances = weighted_distances(as_words(pack(bits)), weights, words)
        if own is not None:
            distances[np.arange(len(distances)), own[chunk]] = np.iinfo(distances.dtype).max
        shares[chunk] = chance_of_rank(distances, nearest[chunk]).mean(axis=1)
    return shares


def mean_look(
    query_codes: UInt8[np.ndarray, "queries bytes"],
    database_codes: UInt8[np.ndarray, "database bytes"],
    nearest: Int64[np.ndarray, "queries k"],
    embeddings: Float[np.ndarray, "queries bits"] | None,
    own: Int64[np.ndarray, " queries"] | None,
) -> tuple[float, float | None]:
    """Return the mean look score by Hamming distance, and by asymmetric distance if possible."""
    by_code = look_score(query_codes, database_codes, nearest, own=own)
    if embeddings is None:
        return float(by_code.mean()), None
    by_embedding = look_score(
        query_codes, database_codes, nearest, query_embeddings=embeddings, own=own
    )
    return float(by_code.mean()), float(by_embedding.mean())


def chance_of_rank(
    distances: Shaped[np.ndarray, "queries database"], items: Int64[np.ndarray, "queries k"]
) -> Float64[np.ndarray, "queries k"]:
    """Return the chance of each item to be among the k nearest, over all orders of the ties.

    >>> chance_of_rank(np.array([[0, 1, 1, 9]]), np.array([[0, 2]]))
    array([[1. , 0.5]])
    """
    k = items.shape[1]
    last = np.partition(distances, k - 1, axis=1)[:, k - 1 : k]  # distance of rank k
    n_before = (distances < last).sum(axis=1, keepdims=True)
    n_tied = (distances == last).sum(axis=1, keepdims=True)
    of_items = np.take_along_axis(distances, items, axis=1)
    return np.where(of_items < last, 1.0, np.where(of_items > last, 0.0, (k - n_before) / n_tied))


def nearest_by_cosine(
    queries: ArrayLike,
    database: ArrayLike,
    *,
    k: int = N_NEAREST,
    own: Int64[np.ndarray, " queries"] | None = None,
) -> Int64[np.ndarray, "queries k"]:
    """Return the positions of the k nearest database items by centred cosine, nearest first.

    Features are centred on the mean of the database; the mean itself has cosine 0 with everything.
    Equal cosines are in database order. A database of fewer than k items gives them all. With
    `own`, the position of each query in the database, no query finds itself.

    >>> nearest_by_cosine([[1.0, 2.0]], [[3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]], k=2)
    array([[1, 0]])
    """
    query_rows, rows = as_rows(queries, "query"), as_rows(database, "database")
    if query_rows.shape[1] != rows.shape[1]:
        raise InputError(
            f"got teacher features of {query_rows.shape[1]} numbers for the queries and of "
            f"{rows.shape[1]} for the database; take both from the same network"
        )
    k = min(k, len(rows) - (own is not None))
    if k < 1:
        raise InputError(f"got a database of {len(rows)} items, none of them a neighbour; add some")
    mean = rows.mean(axis=0, dtype=np.float64)
    tile = min(TILE_ROWS, TILE_NUMBERS // rows.shape[1])
    best = np.empty((len(query_rows), 0), dtype=np.int64)
    for items in slices(len(rows), tile):
        directions = unit_vectors(rows[items], mean)
        parts = []
        for chunk in slices(len(query_rows), tile):
            keys = ranking_keys(unit_vectors(query_rows[chunk], mean) @ directions.T, items.start)
            if own is not None:
                here = np.flatnonzero((own[chunk] >= items.start) & (own[chunk] < items.stop))
                keys[here, own[chunk][here] - items.start] = LAST
            keys = np.concatenate([best[chunk], keys], axis=1)
            parts.append(np.partition(keys, k - 1, axis=1)[:, :k] if keys.shape[1] > k else keys)
        best = np.concatenate(parts)
    return np.sort(best, axis=1) & ((1 << INDEX_BITS) - 1)


def ranking_keys(
    cosines: Float64[np.ndarray, "queries items"], first: int
) -> Int64[np.ndarray, "queries items"]:
    """Return numbers that sort by falling cosine, then by position, which is in the lowest bits."""
    keys: np.ndarray = np.rint((1 - cosines) * GRID).astype(np.int64)
    np.maximum(keys, 0, out=keys)  # a cosine may exceed 1 by a rounding error
    keys <<= INDEX_BITS
    keys += np.arange(first, first + keys.shape[1])
    return keys


def unit_vectors(
    features: Shaped[np.ndarray, "n d"], mean: Float64[np.ndarray, " d"]
) -> Float64[np.ndarray, "n d"]:
    """Return the directions of features from the mean; 0 for those that equal it."""
    centred: np.ndarray = features - mean
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    centred /= np.where(lengths > 0, lengths, 1)
    return centred


def as_rows(features: ArrayLike, name: str) -> Shaped[np.ndarray, "n d"]:
    """Return features with one row per item; small images are flattened."""
    array = np.asarray(features)
    if array.ndim < 2 or 0 in array.shape or array.dtype.kind not in "fiub":
        raise InputError(
            f"got {name} teacher features of shape {array.shape} and type {array.dtype}; pass "
            "numbers of shape (images, d)"
        )
    if not np.isfinite(array).all():
        raise InputError(f"got {name} teacher features that are NaN or infinite; leave them out")
    return array.reshape(len(array), -1)


def count_distinct(codes: UInt8[np.ndarray, "n bytes"]) -> int:
    """Return the number of different codes.

    >>> count_distinct(np.array([[1, 2], [0, 2], [1, 2]], dtype=np.uint8))
    2
    """
    words = as_words(codes)
    ordered = words[:, np.lexsort(words)]
    return 1 + int((ordered[:, 1:] != ordered[:, :-1]).any(axis=0).sum())


def slices(n: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` of n rows, at least 1."""
    size = max(1, size)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
