"""Average precision of asymmetric ranking: embeddings of queries against codes of the database."""

import numpy as np
from jaxtyping import Float, Float64, Int64, Shaped, UInt8, UInt64

from orbithash.codes import binarize, bit_weights, pack
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.scoring.average_precision import expected_precision_sums
from orbithash.kernels.search.asymmetric import weighted_distances
from orbithash.relevance import group_by_labels, related

CHUNK_PAIRS = 1 << 21  # of queries and codes whose distances are in memory, some 20 bytes each
LAST = np.iinfo(np.int64).max  # key of an item that is left out


def asymmetric_average_precision(
    queries: Float[np.ndarray, "queries bits"],
    database: UInt8[np.ndarray, "database bytes"],
    query_labels: Shaped[np.ndarray, "queries *classes"],
    database_labels: Shaped[np.ndarray, "database *classes"],
    *,
    own: Int64[np.ndarray, " queries"] | None = None,
) -> Float64[np.ndarray, " queries"]:
    """Return the AP of each query, as the mean over all orders of the ties.

    A query without relevant items has AP NaN. With `own`, the position of each query in the
    database, no query finds itself.

    >>> database = np.array([[0b10000000], [0b01000000]], dtype=np.uint8)  # Hamming distance 1
    >>> query = np.array([[0.1, 0.4, 0.0, 0.0]])  # its second bit is less certain
    >>> asymmetric_average_precision(query, database, np.array([7]), np.array([7, 8]))
    array([0.5])
    """
    average_precision = np.full(len(queries), np.nan)
    words, groups = as_words(database), group_by_labels(database_labels)
    size = max(1, CHUNK_PAIRS // max(1, len(database)))
    for start in range(0, len(queries), size):
        chunk = slice(start, min(start + size, len(queries)))
        is_relevant = related(query_labels[chunk], groups.labels)[:, groups.group]
        keys = ranking_keys(queries[chunk], words)
        keys += is_relevant
        if own is not None:
            itself = np.arange(len(keys)), own[chunk]
            keys[itself], is_relevant[itself] = LAST, False
        keys.sort(axis=1)
        n_relevant = is_relevant.sum(axis=1)
        sums = expected_precision_sums(
            np.ascontiguousarray(keys[:, : keys.shape[1] - (own is not None)])
        )
        average_precision[chunk] = np.where(n_relevant, sums / np.maximum(n_relevant, 1), np.nan)
    return average_precision


def ranking_keys(
    queries: Float[np.ndarray, "queries bits"], database: UInt64[np.ndarray, "words database"]
) -> Int64[np.ndarray, "queries database"]:
    """Return twice the asymmetric distances in units of their grid, less a constant per query."""
    weights, _ = bit_weights(queries)
    keys = weighted_distances(as_words(pack(binarize(queries))), weights, database)
    keys *= 2
    return keys
