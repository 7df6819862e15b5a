"""Average precision of asymmetric ranking: embeddings of queries against codes of the database."""

import numpy as np
from jaxtyping import Float, Float64, Int64, Shaped, UInt8

from orbithash.codes import GRID, asymmetric_distances
from orbithash.kernels.ranked_lists import expected_precision_sums
from orbithash.relevance import related

CHUNK_PAIRS = 1 << 21  # of queries and codes whose distances are in memory, some 40 bytes each
LAST = np.iinfo(np.int64).max  # key of an item that is left out


def asymmetric_average_precision(
    queries: Float[np.ndarray, "queries bits"],
    database: UInt8[np.ndarray, "database bytes"],
    query_labels: Shaped[np.ndarray, "queries *classes"],
    database_labels: Shaped[np.ndarray, "database *classes"],
    *,
    leave_one_out: bool = False,
) -> Float64[np.ndarray, " queries"]:
    """Return the AP of each query, as the mean over all orders of the ties.

    A query without relevant items has AP NaN. With `leave_one_out`, the database is the queries'
    own codes, and no item is in its own ranking.

    >>> database = np.array([[0b10000000], [0b01000000]], dtype=np.uint8)  # Hamming distance 1
    >>> query = np.array([[0.1, 0.4, 0.0, 0.0]])  # its second bit is less certain
    >>> asymmetric_average_precision(query, database, np.array([7]), np.array([7, 8]))
    array([0.5])
    """
    average_precision = np.full(len(queries), np.nan)
    size = max(1, CHUNK_PAIRS // max(1, len(database)))
    for start in range(0, len(queries), size):
        chunk = slice(start, min(start + size, len(queries)))
        is_relevant = related(query_labels[chunk], database_labels)
        keys = ranking_keys(queries[chunk], database) + is_relevant
        if leave_one_out:
            own = np.arange(len(keys))
            keys[own, own + start], is_relevant[own, own + start] = LAST, False
        keys.sort(axis=1)
        n_relevant = is_relevant.sum(axis=1)
        sums = expected_precision_sums(
            np.ascontiguousarray(keys[:, : keys.shape[1] - leave_one_out])
        )
        average_precision[chunk] = np.where(n_relevant, sums / np.maximum(n_relevant, 1), np.nan)
    return average_precision


def ranking_keys(
    queries: Float[np.ndarray, "queries bits"], database: UInt8[np.ndarray, "database bytes"]
) -> Int64[np.ndarray, "queries database"]:
    """Return twice the distances, as whole numbers on their grid."""
    return (asymmetric_distances(queries, database) * (2 * GRID)).astype(np.int64)
