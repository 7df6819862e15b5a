"""Distance histograms: how many images, and how many that answer, lie at each Hamming distance.

Every score except the stable order is a function of these, so nothing is ever sorted.
"""

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt64
from numba import njit, prange

from orbithash.kernels.hamming import hamming_distances_reference
from orbithash.kernels.popcount import (
    as_words,
    block_distances,
    check_same_length,
)
from orbithash.kernels.threads import parallel, queries_per_task

BLOCK_WORDS = 65536  # that a task's queries go through in turn, while they are in the cache
PART = 2048  # distances computed before they are counted
TOGETHER = 16  # queries of one task, at most
PAIRED_BITS = 127  # up to here the table of pairs is small enough for the cache


def distance_histograms(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    n_bits: int,
) -> Int64[np.ndarray, "queries distances"]:
    """How many database codes lie at each distance 0 … n_bits of each query.

    >>> queries, database = np.array([[0b1100]], np.uint8), np.array([[0b1010], [0]], np.uint8)
    >>> distance_histograms(queries, database, n_bits=4)
    array([[0, 0, 2, 0, 0]])
    """
    check_same_length(queries, database)
    return graded_histograms(
        as_words(queries),
        as_words(database),
        np.array([0, len(database)], dtype=np.int64),
        np.zeros((len(queries), 1), dtype=np.int32),
        n_bits,
    )[0]


def graded_histograms(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    starts: Int64[np.ndarray, " groups_and_end"],
    grades: Int32[np.ndarray, "queries groups"],
    n_bits: int,
) -> tuple[Int64[np.ndarray, "queries distances"], Int64[np.ndarray, "queries grades distances"]]:
    """Histograms of all images, and of those of each grade of relevance 1, 2, ….

    Codes come as `as_words` lays them out, the database sorted into groups that have the same
    grade for any one query: group g is the columns `starts[g]` to `starts[g + 1]`.
    """
    n_queries, n_grades = len(grades), max(1, int(grades.max(initial=1)))
    items = np.zeros((n_queries, n_bits + 1), dtype=np.int64)
    by_grade = np.zeros((n_queries, n_grades, n_bits + 1), dtype=np.int64)
    count = count_in_pairs if n_bits <= PAIRED_BITS else count_singly
    together = queries_per_task(n_queries, TOGETHER)
    count(queries, database, starts, grades, together, items, by_grade)
    return items, by_grade


def graded_histograms_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    grades: Int32[np.ndarray, "queries database"],
    n_bits: int,
) -> tuple[Int64[np.ndarray, "queries distances"], Int64[np.ndarray, "queries grades distances"]]:
    """The same in plain numpy, from packed codes and the grade of every pair."""
    distances = hamming_distances_reference(queries, database)
    items = np.zeros((len(queries), n_bits + 1), dtype=np.int64)
    by_grade = np.zeros((len(queries), max(1, grades.max(initial=1)), n_bits + 1), dtype=np.int64)
    for query, row in enumerate(distances):
        items[query] = np.bincount(row, minlength=n_bits + 1)
        for grade in range(by_grade.shape[1]):
            chosen = row[grades[query] == grade + 1]
            by_grade[query, grade] = np.bincount(chosen, minlength=n_bits + 1)
    return items, by_grade


@parallel
def count_in_pairs(queries, database, starts, grades, together, items, by_grade):  # type: ignore[no-untyped-def]
    """Count two neighbours with one increment, in a table of all pairs of distances.

    This halves the increments, and seldom are two in a row to the same place, which would make
    the second wait for the first. Where all codes of a class are equal they are: hence two
    tables, in turn.
    """
    n_queries, n_distances = items.shape
    n, block = database.shape[1], max(PART, BLOCK_WORDS // database.shape[0])
    for task in prange((n_queries + together - 1) // together):
        distances = np.empty(PART, dtype=np.uint8)
        pairs = distances.view(np.uint16)
        tables = np.zeros((2, n_distances * 256), dtype=np.uint32)
        first, second = tables[0], tables[1]
        for start in range(0, n, block):
            stop = min(start + block, n)
            for query in range(task * together, min((task + 1) * together, n_queries)):
                for part in range(start, stop, PART):
                    end = min(part + PART, stop)
                    block_distances(queries, query, database, part, end, distances)
                    for i in range((end - part) // 4):
                        first[pairs[2 * i]] += np.uint32(1)
                        second[pairs[2 * i + 1]] += np.uint32(1)
                    for i in range((end - part) // 4 * 4, end - part):
                        items[query, distances[i]] += 1
                    count_answers(distances, part, end, starts, grades[query], by_grade[query])
                empty_pairs(first, items[query])
                empty_pairs(second, items[query])


@parallel
def count_singly(queries, database, starts, grades, together, items, by_grade):  # type: ignore[no-untyped-def]
    """Count neighbours in turn in four histograms, so that equal ones need not wait."""
    n_queries, n_distances = items.shape
    n, block = database.shape[1], max(PART, BLOCK_WORDS // database.shape[0])
    for task in prange((n_queries + together - 1) // together):
        distances = np.empty(PART, dtype=np.uint16)
        turns = np.zeros((4, n_distances), dtype=np.uint32)
        first, second, third, fourth = turns[0], turns[1], turns[2], turns[3]
        for start in range(0, n, block):
            stop = min(start + block, n)
            for query in range(task * together, min((task + 1) * together, n_queries)):
                for part in range(start, stop, PART):
                    end = min(part + PART, stop)
                    block_distances(queries, query, database, part, end, distances)
                    for i in range((end - part) // 4):
                        first[distances[4 * i]] += np.uint32(1)
                        second[distances[4 * i + 1]] += np.uint32(1)
                        third[distances[4 * i + 2]] += np.uint32(1)
                        fourth[distances[4 * i + 3]] += np.uint32(1)
                    for i in range((end - part) // 4 * 4, end - part):
                        items[query, distances[i]] += 1
                    count_answers(distances, part, end, starts, grades[query], by_grade[query])
                for distance in range(n_distances):
                    items[query, distance] += turns[:, distance].sum()
                turns[:] = 0


@njit(cache=True, nogil=True)
def count_answers(distances, part, end, starts, grades, by_grade):  # type: ignore[no-untyped-def]
    """Add the images `part` to `end` to the histogram of their group's grade."""
    group, beyond = 0, grades.size
    while beyond - group > 1:  # bisect for the group of the first image
        middle = (group + beyond) // 2
        if starts[middle] <= part:
            group = middle
        else:
            beyond = middle
    while group < grades.size and starts[group] < end:
        grade = grades[group]
        if grade > 0:
            histogram = by_grade[grade - 1]
            for i in range(max(starts[group], part) - part, min(starts[group + 1], end) - part):
                histogram[distances[i]] += 1
        group += 1


@njit(cache=True, nogil=True)
def empty_pairs(table, items):  # type: ignore[no-untyped-def]
    """Add both sides of every counted pair to `items` and set the table back to 0."""
    n_distances = items.size
    earlier = np.zeros(n_distances, dtype=np.uint32)
    for later in range(n_distances):
        # Little or big endian, one neighbour chooses the row and the other the column.
        row = table[later * 256 : later * 256 + n_distances]
        total = np.uint32(0)
        for i in range(n_distances):
            earlier[i] += row[i]
            total += row[i]
            row[i] = 0
        items[later] += total
    for i in range(n_distances):
        items[i] += earlier[i]
