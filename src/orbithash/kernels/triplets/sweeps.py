"""The triplets of one anchor with a long list, compiled: in the time of a sort, for γ = 1 and 2.

λ of positive j and negative k is, with `v` a factor of the negative (1 for ΔAP),

    in order     e(j)·v(k) + f(k)
    misranked    b(j)·v(k) + a(k)  =  the above  +  c(j)·v(k) + g(k)     c = b − e, g = a − f

and hinge^(γ−1) is 1 or t(j) − d(k) where the distance d(k) is below the threshold t(j), else 0. The
gradient of j, Σ λ·hinge^(γ−1) over the negatives, so is a sum of products of a number of j and one
over negatives: those with d(k) < t(j), and those of them that also rank before j. Going through
the positives by ascending threshold, the former are running sums, the latter prefix sums over the
ranks of the negatives met so far: a Fenwick tree. The gradients of the negatives are the same with
the roles exchanged. The loss follows from them, as the hinge itself is t(j) − d(k).

All numbers are doubles, compiled once for all types of embeddings. Distances are taken from the
mean of the thresholds, so that differences such as t·Σ1 − Σd lose few digits.
"""

import numpy as np
from numba import njit

N_SUMS = 4  # in a node of the tree, adjacent in memory


@njit(cache=True, nogil=True)
def sweeping_pays(n_positives, n_negatives):  # type: ignore[no-untyped-def]
    """Return whether sweeps, with the sort they need, take less time than a loop over all pairs.

    Per item they took as long as 70 to 130 pairs, for lists of 1,000 to 16,000 items.
    """
    return n_positives * n_negatives > 100 * (n_positives + n_negatives)


@njit(cache=True, nogil=True)
def sweep_pairs(  # type: ignore[no-untyped-def]
    thresholds,
    positive_order,
    negative_distances,
    negative_order,
    n_before,
    positive_terms,
    negative_terms,
    factors,
    squared,
):
    """Sum λ·hinge^γ over all pairs of a positive and a negative of one anchor, γ = 2 if `squared`.

    Positives and negatives are in rank order: the first `n_before[k]` positives rank before
    negative k. `positive_order` and `negative_order` sort them by threshold and distance. The rows
    of the terms are those of misranked pairs (b, a) and of pairs in order (e, f).

    Returns the sum, the number of active pairs, and the gradients of positives and negatives, which
    lack the factor γ.
    """
    centre = thresholds.mean()
    rest = (n_before, positive_terms, negative_terms, factors, squared, centre)
    gradients, active = _sum_over_negatives(
        thresholds, positive_order, negative_distances, negative_order, *rest
    )
    negative_gradients = _sum_over_positives(
        thresholds, positive_order, negative_distances, negative_order, *rest
    )
    loss = ((thresholds - centre) * gradients).sum()
    loss -= ((negative_distances - centre) * negative_gradients).sum()
    return loss, active, gradients, -negative_gradients


@njit(cache=True, nogil=True)
def _sum_over_negatives(  # type: ignore[no-untyped-def]
    thresholds,
    positive_order,
    negative_distances,
    negative_order,
    n_before,
    positive_terms,
    negative_terms,
    factors,
    squared,
    centre,
):
    """Return Σ λ·hinge^(γ−1) of each positive, and the number of active pairs."""
    n_positives, n_negatives = len(thresholds), len(negative_distances)
    sums = np.zeros(n_positives)
    tree = np.zeros((n_positives + 2, N_SUMS))
    all_met = np.zeros(N_SUMS)
    active, met = 0, 0
    for j in positive_order:
        while met < n_negatives and negative_distances[negative_order[met]] < thresholds[j]:
            k = negative_order[met]
            d = negative_distances[k] - centre
            v, f = factors[k], negative_terms[1, k]
            g = negative_terms[0, k] - f
            all_met[0] += v
            all_met[1] += v * d
            all_met[2] += f
            all_met[3] += f * d
            _add(tree, n_before[k], v, v * d, g, g * d)
            met += 1
        active += met
        before = _sum_first(tree, j + 1)
        e = positive_terms[1, j]
        c = positive_terms[0, j] - e
        if squared:
            t = thresholds[j] - centre
            sums[j] = (
                e * (t * all_met[0] - all_met[1])
                + (t * all_met[2] - all_met[3])
                + c * (t * before[0] - before[1])
                + (t * before[2] - before[3])
            )
        else:
            sums[j] = e * all_met[0] + all_met[2] + c * before[0] + before[2]
    return sums, active


@njit(cache=True, nogil=True)
def _sum_over_positives(  # type: ignore[no-untyped-def]
    thresholds,
    positive_order,
    negative_distances,
    negative_order,
    n_before,
    positive_terms,
    negative_terms,
    factors,
    squared,
    centre,
):
    """Return Σ λ·hinge^(γ−1) of each negative: from the farthest, over ranks from the last."""
    n_positives, n_negatives = len(thresholds), len(negative_distances)
    sums = np.zeros(n_negatives)
    tree = np.zeros((n_positives + 1, N_SUMS))
    all_met = np.zeros(N_SUMS)
    met = 0
    for place in range(n_negatives - 1, -1, -1):
        k = negative_order[place]
        while (
            met < n_positives
            and thresholds[positive_order[n_positives - 1 - met]] > negative_distances[k]
        ):
            j = positive_order[n_positives - 1 - met]
            t = thresholds[j] - centre
            e = positive_terms[1, j]
            c = positive_terms[0, j] - e
            all_met[0] += 1
            all_met[1] += t
            all_met[2] += e
            all_met[3] += e * t
            _add(tree, n_positives - 1 - j, 1.0, t, c, c * t)
            met += 1
        after = _sum_first(tree, n_positives - n_before[k])
        v, f = factors[k], negative_terms[1, k]
        g = negative_terms[0, k] - f
        if squared:
            d = negative_distances[k] - centre
            sums[k] = (
                f * (all_met[1] - d * all_met[0])
                + v * (all_met[3] - d * all_met[2])
                + g * (after[1] - d * after[0])
                + v * (after[3] - d * after[2])
            )
        else:
            sums[k] = f * all_met[0] + v * all_met[2] + g * after[0] + v * after[2]
    return sums


@njit(cache=True, nogil=True)
def _add(tree, place, first, second, third, fourth):  # type: ignore[no-untyped-def]
    """Add numbers at a place of a Fenwick tree, counted from 0."""
    node = place + 1
    while node < len(tree):
        tree[node, 0] += first
        tree[node, 1] += second
        tree[node, 2] += third
        tree[node, 3] += fourth
        node += node & -node


@njit(cache=True, nogil=True)
def _sum_first(tree, n):  # type: ignore[no-untyped-def]
    """Return the sums over the first `n` places of a Fenwick tree."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    while n > 0:
        first += tree[n, 0]
        second += tree[n, 1]
        third += tree[n, 2]
        fourth += tree[n, 3]
        n &= n - 1
    return first, second, third, fourth
