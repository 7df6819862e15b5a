"""Evaluations of ±1 codes as published programs do them, each written as a plain loop.

signs   float32 (n, bits)      -1 and 1
marks   float32 (n, classes)   1 for each label of an item, otherwise 0
order   how numpy sorts: None is its default, which published programs use

They differ in the divisor of a query's average precision among the first N, and in what becomes
of a query that finds nothing there.
"""

import numpy as np


def found_or_zero(query_signs, database_signs, query_marks, database_marks, n, order):
    """Divide by the relevant items found; a query without any counts as 0 (DeepHash-pytorch)."""
    total = 0.0
    for signs, marks in zip(query_signs, query_marks, strict=True):
        relevant = database_marks @ marks > 0
        distances = 0.5 * (signs.size - database_signs @ signs)
        ranks = np.flatnonzero(relevant[np.argsort(distances, kind=order)][:n]) + 1
        if len(ranks):
            total += np.mean(np.arange(1, len(ranks) + 1) / ranks)
    return total / len(query_signs)


def found_or_left_out(query_signs, database_signs, query_marks, database_marks, n, order):
    """Divide by the relevant items found; a query that finds none is left out (HashNet)."""
    by_column = np.argsort(-(database_signs @ query_signs.T), axis=0, kind=order)
    values = []
    for column, marks in zip(by_column.T, query_marks, strict=True):
        relevant = (database_marks[column[:n]] * marks).any(axis=1)
        precisions = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
        if relevant.any():
            values.append((precisions * relevant).sum() / relevant.sum())
    return np.mean(values)


def by_minimum(query_signs, database_signs, query_marks, database_marks, n, order):
    """Divide by the smaller of N and the number of relevant items in the database."""
    values = []
    for signs, marks in zip(query_signs, query_marks, strict=True):
        distances = (database_signs != signs).sum(axis=1).astype(np.float32)
        relevant = (database_marks @ marks > 0)[np.argsort(distances, kind=order)]
        total, seen = 0.0, 0
        for rank, is_relevant in enumerate(relevant[:n], start=1):
            if is_relevant:
                seen += 1
                total += seen / rank
        values.append(total / min(n, relevant.sum()))
    return np.mean(values)


def within_radius(query_signs, database_signs, query_marks, database_marks, radius):
    """Return the precision within a radius, without empty balls and with these as 0."""
    precisions, n_empty = [], 0
    for signs, marks in zip(query_signs, query_marks, strict=True):
        inside = 0.5 * (signs.size - database_signs @ signs) <= radius
        if inside.any():
            precisions.append((database_marks[inside] @ marks > 0).mean())
        else:
            n_empty += 1
    return np.mean(precisions), np.sum(precisions) / len(query_signs), n_empty / len(query_signs)
