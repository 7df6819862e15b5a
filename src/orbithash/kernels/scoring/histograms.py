"""Histograms of Hamming distances: of all database items, and of those of each grade of relevance.

All scores except those in stable order are functions of these histograms, so nothing is sorted.
"""

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt64
from numba import njit, prange

from orbithash.kernels.hamming import block_distances, check_same_length
from orbithash.kernels.plain_search import as_words, hamming_distances_reference
from orbithash.kernels.threads import parallel_njit, queries_per_task

BLOCK_WORDS = 65536  # of codes, which stay in the cache while a task's queries read them
PART_CODES = 2048  # distances computed before they are counted
MAX_QUERIES_PER_TASK = 16
MAX_PAIRED_BITS = 127  # up to here the table of pairs fits the cache


def distance_histograms(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    n_bits: int,
) -> Int64[np.ndarray, "queries distances"]:
    """Count the database codes at each distance 0 … n_bits of each query.

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
    """Return histograms of all items, and of the items of each grade of relevance 1, 2, ….

    Codes have the layout of `as_words`. The database is sorted into groups of items that have the
    same grade for any one query: group g is the columns `starts[g]` to `starts[g + 1]`.
    """
    n_queries, n_grades = len(grades), max(1, int(grades.max(initial=1)))
    items = np.zeros((n_queries, n_bits + 1), dtype=np.int64)
    by_grade = np.zeros((n_queries, n_grades, n_bits + 1), dtype=np.int64)
    count = count_in_pairs if n_bits <= MAX_PAIRED_BITS else count_singly
    task_queries = queries_per_task(n_queries, MAX_QUERIES_PER_TASK)
    count(queries, database, starts, grades, task_queries, items, by_grade)
    return items, by_grade


def graded_histograms_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    grades: Int32[np.ndarray, "queries database"],
    n_bits: int,
) -> tuple[Int64[np.ndarray, "queries distances"], Int64[np.ndarray, "queries grades distances"]]:
    """Compute the same in plain numpy, from packed codes and the grade of every pair."""
    distances = hamming_distances_reference(queries, database)
    items = np.zeros((len(queries), n_bits + 1), dtype=np.int64)
    by_grade = np.zeros((len(queries), max(1, grades.max(initial=1)), n_bits + 1), dtype=np.int64)
    for query, row in enumerate(distances):
        items[query] = np.bincount(row, minlength=n_bits + 1)
        for grade in range(by_grade.shape[1]):
            of_grade = row[grades[query] == grade + 1]
            by_grade[query, grade] = np.bincount(of_grade, minlength=n_bits + 1)
    return items, by_grade


@parallel_njit
def count_in_pairs(queries, database, starts, grades, task_queries, items, by_grade):  # type: ignore[no-untyped-def]
    """Count two consecutive distances with one increment, in a table of all pairs of distances.

    This halves the increments. Two increments of the same entry in a row stall, which is rare among
    pairs, except where all codes of a class are equal: hence two tables, used alternately.
    """
    n_queries, n_distances = items.shape
    n, block = database.shape[1], max(PART_CODES, BLOCK_WORDS // database.shape[0])
    for task in prange((n_queries + task_queries - 1) // task_queries):
        distances = np.empty(PART_CODES, dtype=np.uint8)
        pairs = distances.view(np.uint16)
        tables = np.zeros((2, n_distances * 256), dtype=np.uint32)
        first, second = tables[0], tables[1]
        for start in range(0, n, block):
            stop = min(start + block, n)
            for query in range(task * task_queries, min((task + 1) * task_queries, n_queries)):
                for part in range(start, stop, PART_CODES):
                    end = min(part + PART_CODES, stop)
                    block_distances(queries, query, database, part, end, distances)
                    for i in range((end - part) // 4):
                        first[pairs[2 * i]] += np.uint32(1)
                        second[pairs[2 * i + 1]] += np.uint32(1)
                    for i in range((end - part) // 4 * 4, end - part):
                        items[query, distances[i]] += 1
                    count_relevant(distances, part, end, starts, grades[query], by_grade[query])
                flush_pairs(first, items[query])
                flush_pairs(second, items[query])


@parallel_njit
def count_singly(queries, database, starts, grades, task_queries, items, by_grade):  # type: ignore[no-untyped-def]
    """Count consecutive distances in four histograms in turn, so that equal ones do not stall."""
    n_queries, n_distances = items.shape
    n, block = database.shape[1], max(PART_CODES, BLOCK_WORDS // database.shape[0])
    for task in prange((n_queries + task_queries - 1) // task_queries):
        distances = np.empty(PART_CODES, dtype=np.uint16)
        partial = np.zeros((4, n_distances), dtype=np.uint32)
        first, second, third, fourth = partial[0], partial[1], partial[2], partial[3]
        for start in range(0, n, block):
            stop = min(start + block, n)
            for query in range(task * task_queries, min((task + 1) * task_queries, n_queries)):
                for part in range(start, stop, PART_CODES):
                    end = min(part + PART_CODES, stop)
                    block_distances(queries, query, database, part, end, distances)
                    for i in range((end - part) // 4):
                        first[distances[4 * i]] += np.uint32(1)
                        second[distances[4 * i + 1]] += np.uint32(1)
                        third[distances[4 * i + 2]] += np.uint32(1)
                        fourth[distances[4 * i + 3]] += np.uint32(1)
                    for i in range((end - part) // 4 * 4, end - part):
                        items[query, distances[i]] += 1
                    count_relevant(distances, part, end, starts, grades[query], by_grade[query])
                for distance in range(n_distances):
                    items[query, distance] += partial[:, distance].sum()
                partial[:] = 0


@njit(cache=True, nogil=True)
def count_relevant(distances, part, end, starts, grades, by_grade):  # type: ignore[no-untyped-def]
    """Add the items `part` to `end` to the histogram of their group's grade."""
    group, end_group = 0, grades.size
    while end_group - group > 1:  # bisect for the group of the first item
        middle = (group + end_group) // 2
        if starts[middle] <= part:
            group = middle
        else:
            end_group = middle
    while group < grades.size and starts[group] < end:
        grade = grades[group]
        if grade > 0:
            histogram = by_grade[grade - 1]
            for i in range(max(starts[group], part) - part, min(starts[group + 1], end) - part):
                histogram[distances[i]] += 1
        group += 1


@njit(cache=True, nogil=True)
def flush_pairs(table, items):  # type: ignore[no-untyped-def]
    """Add both members of every counted pair to `items` and reset the table to 0."""
    n_distances = items.size
    column_sums = np.zeros(n_distances, dtype=np.uint32)
    for row_distance in range(n_distances):
        # One member of the pair is the row, the other the column; which one depends on endianness.
        row = table[row_distance * 256 : row_distance * 256 + n_distances]
        total = np.uint32(0)
        for i in range(n_distances):
            column_sums[i] += row[i]
            total += row[i]
            row[i] = 0
        items[row_distance] += total
    for i in range(n_distances):
        items[i] += column_sums[i]
