"""All triplets of a batch, compiled: weights, loss and gradient without storing a triplet.

In the sorted list of one anchor, c(p) counts the positives up to rank p, S(p) is the sum of 1/rank
over them, R their number. Swapping a positive at rank j with a negative at rank k changes the
average precision by

    k < j (misranked)   [ (c(k) + 1)/k − S(k) + S(j−1) − c(j)/j ] / R
    j < k (in order)    [ c(j)/j − S(j)       + S(k)   − c(k)/k ] / R

a term of the positive plus a term of the negative. So an anchor needs one sort and one walk along
its list; what remains per triplet is a sum, a hinge and a product, in loops without a branch.

`losses/triplet_tensors.py` says the same in plain tensor operations.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from orbithash.kernels.rank_lists import rank_list
from orbithash.kernels.threads import parallel, threads_for


class Terms(NamedTuple):
    """What the triplets of each anchor add up to; all but `slopes` one value per anchor."""

    totals: np.ndarray  # Σ λ·hinge^γ
    weights: np.ndarray  # Σ λ
    triplets: np.ndarray  # how many
    active: np.ndarray  # how many of them with hinge > 0
    slopes: np.ndarray  # (anchors, n): the derivative of the total by each distance


def triplet_terms(
    distances: np.ndarray,
    hamming: np.ndarray,
    grades: np.ndarray,
    *,
    margin: float,
    gamma: float,
    weighting: str,
    tie_keys: np.ndarray | None,
) -> Terms:
    """The terms of every anchor; all arrays are (anchors, n).

    `grades` counts labels in common, −1 where the item is not in the anchor's list (the anchor
    itself). Equal Hamming distances are ordered by `tie_keys`, non-negative floats of the type of
    the distances, then by position.
    """
    n_anchors = len(distances)
    terms = Terms(
        np.zeros(n_anchors),
        np.zeros(n_anchors),
        np.zeros(n_anchors),
        np.zeros(n_anchors),
        np.zeros_like(distances),
    )
    # Numbers of the arrays' own type keep float32 arithmetic in float32.
    number = distances.dtype.type
    integer = np.dtype(f"u{distances.itemsize}")
    keys = (distances if tie_keys is None else tie_keys).view(integer)
    key_bits = 0 if tie_keys is None else 8 * distances.itemsize
    lists = (distances, hamming, grades, keys, key_bits)
    with threads_for(distances.size):
        if weighting == "ndcg":
            _graded_anchors(*lists, number(margin), number(gamma), *terms)
        else:
            _binary_anchors(*lists, number(margin), number(gamma), weighting == "ap", *terms)
    return terms


@parallel
def _binary_anchors(  # type: ignore[no-untyped-def]
    distances,
    hamming,
    grades,
    keys,
    key_bits,
    margin,
    gamma,
    weighted,
    totals,
    weights,
    triplets,
    active,
    slopes,
):
    """Related against unrelated items."""
    for anchor in prange(len(distances)):
        grade = grades[anchor]
        members = np.flatnonzero(grade >= 0)
        n_positives = np.count_nonzero(grade > 0)
        n_negatives = len(members) - n_positives
        if n_positives == 0 or n_negatives == 0:
            continue
        # Without weights the order makes no difference.
        order = rank_list(members, hamming[anchor], keys[anchor], key_bits) if weighted else members
        positives, negatives, nearer, of_positive, of_negative = _average_precision_terms(
            order, grade, n_positives
        )
        if not weighted:
            of_positive[:], of_negative[:] = 1.0, 0.0
        totals[anchor], active[anchor], slope_of_positive, slope_of_negative = _hinge_pairs(
            distances[anchor][positives],
            distances[anchor][negatives],
            nearer,
            of_positive.astype(distances.dtype),
            of_negative.astype(distances.dtype),
            margin,
            gamma,
        )
        triplets[anchor] = n_positives * n_negatives
        weights[anchor] = _sum_of_weights(nearer, of_positive, of_negative)
        for position in range(n_positives):
            slopes[anchor, positives[position]] = slope_of_positive[position]
        for position in range(n_negatives):
            slopes[anchor, negatives[position]] = slope_of_negative[position]


@njit(cache=True, nogil=True)
def _average_precision_terms(order, grade, n_positives):  # type: ignore[no-untyped-def]
    """Split the list into positives and negatives, each with its two terms of the weight.

    Row 0 of the terms holds for pairs in the wrong order, row 1 for pairs in the right one;
    `nearer` counts the negatives before each positive.
    """
    n_negatives = len(order) - n_positives
    positives, nearer = np.empty(n_positives, np.int64), np.empty(n_positives, np.int64)
    negatives = np.empty(n_negatives, np.int64)
    of_positive, of_negative = np.empty((2, n_positives)), np.empty((2, n_negatives))
    count, reciprocals = 0, 0.0  # c and S of the ranks passed so far
    for position in range(len(order)):
        rank = position + 1
        if grade[order[position]] > 0:
            positives[count], nearer[count] = order[position], position - count
            of_positive[0, count] = (reciprocals - (count + 1) / rank) / n_positives
            reciprocals += 1 / rank
            of_positive[1, count] = ((count + 1) / rank - reciprocals) / n_positives
            count += 1
        else:
            negative = position - count
            negatives[negative] = order[position]
            of_negative[0, negative] = ((count + 1) / rank - reciprocals) / n_positives
            of_negative[1, negative] = (reciprocals - count / rank) / n_positives
    return positives, negatives, nearer, of_positive, of_negative


@njit(cache=True, nogil=True)
def _hinge_pairs(positive, negative, nearer, of_positive, of_negative, margin, gamma):  # type: ignore[no-untyped-def]
    """Σ λ·hinge^γ over all pairs of these distances, and its derivative by each."""
    exponent = gamma - positive.dtype.type(1)
    slope_of_positive = np.zeros_like(positive)
    # One value per negative, summed over the positives.
    slope_of_negative, totals = np.zeros_like(negative), np.zeros_like(negative)
    active, pulls = np.zeros_like(negative), np.zeros_like(negative)
    for j in range(len(positive)):
        for side in range(2):
            start, stop = (0, nearer[j]) if side == 0 else (nearer[j], len(negative))
            _hinge_run(
                margin + positive[j],
                negative[start:stop],
                of_positive[side, j],
                of_negative[side, start:stop],
                exponent,
                pulls[start:stop],
                slope_of_negative[start:stop],
                totals[start:stop],
                active[start:stop],
            )
        slope_of_positive[j] = _fold(pulls)
    return _fold(totals), _fold(active), gamma * slope_of_positive, gamma * slope_of_negative


@njit(cache=True, nogil=True)
def _hinge_run(  # type: ignore[no-untyped-def]
    reach, negative, of_positive, of_negative, exponent, pulls, slope_of_negative, totals, active
):
    """One positive against a run of negatives: the innermost loop, which must vectorise.

    It adds nothing up across the run. A flag that lets the compiler reorder such a sum would make
    it vectorise too, but it may come out differently each time the code is compiled.
    """
    zero, one = negative.dtype.type(0), negative.dtype.type(1)
    for k in range(len(negative)):
        hinge = max(reach - negative[k], zero)
        pull = (of_positive + of_negative[k]) * _power(hinge, exponent)
        pulls[k] = pull
        slope_of_negative[k] -= pull
        totals[k] += pull * hinge
        active[k] += one if hinge > zero else zero


@njit(cache=True, nogil=True)
def _fold(values):  # type: ignore[no-untyped-def]
    """Their sum, by adding the second half to the first until one is left; uses them up."""
    n = len(values)
    while n > 1:
        half = (n + 1) // 2
        front, back = values[: n - half], values[half:n]
        for i in range(len(front)):
            front[i] += back[i]
        n = half
    return values[0]


@njit(cache=True, nogil=True, inline="always")
def _power(hinge, exponent):  # type: ignore[no-untyped-def]
    """hinge^(γ−1), 0 where the hinge is closed. The usual γ do without `pow`, and the choice
    between them is moved out of the loops by the compiler."""
    if exponent == 1:
        return hinge
    if exponent == 0:
        return np.sign(hinge)
    if exponent == 2:
        return hinge * hinge
    return hinge**exponent


@njit(cache=True, nogil=True)
def _sum_of_weights(nearer, of_positive, of_negative):  # type: ignore[no-untyped-def]
    """Σ λ over all pairs, from running sums over the negatives."""
    n_negatives = of_negative.shape[1]
    wrong, right = 0.0, of_negative[1].sum()
    total, passed = 0.0, 0
    for j in range(len(nearer)):
        while passed < nearer[j]:
            wrong += of_negative[0, passed]
            right -= of_negative[1, passed]
            passed += 1
        total += wrong + passed * of_positive[0, j]
        total += right + (n_negatives - passed) * of_positive[1, j]
    return total


@parallel
def _graded_anchors(  # type: ignore[no-untyped-def]
    distances,
    hamming,
    grades,
    keys,
    key_bits,
    margin,
    gamma,
    totals,
    weights,
    triplets,
    active,
    slopes,
):
    """Each item against all that share fewer labels with the anchor, weighted by ΔNDCG."""
    discounts = 1 / np.log2(np.arange(grades.shape[1]) + 2)
    for anchor in prange(len(distances)):
        members = np.flatnonzero(grades[anchor] >= 0)
        if len(members) == 0:
            continue
        order = rank_list(members, hamming[anchor], keys[anchor], key_bits)
        # 2^grade − 1, relative to the highest in the list, so that many labels do not overflow.
        grade = grades[anchor][order].astype(np.float64)
        gains = 2.0 ** (grade - grade.max()) - 2.0 ** (-grade.max())
        ideal = (np.sort(gains)[::-1] * discounts[: len(gains)]).sum()
        if ideal == 0:
            continue
        totals[anchor], weights[anchor], triplets[anchor], active[anchor], slope = _graded_pairs(
            distances[anchor][order],
            (gains / ideal).astype(distances.dtype),
            discounts[: len(gains)].astype(distances.dtype),
            margin,
            gamma,
        )
        for position in range(len(order)):
            slopes[anchor, order[position]] = slope[position]


@njit(cache=True, nogil=True)
def _graded_pairs(distance, gain, discount, margin, gamma):  # type: ignore[no-untyped-def]
    """All pairs (j, k) of one list in rank order with gain j > gain k; λ = Δgain · |Δdiscount|."""
    zero, one = distance.dtype.type(0), distance.dtype.type(1)
    exponent = gamma - one
    slopes = np.zeros_like(distance)
    total, weight, triplets, active = 0.0, 0.0, 0.0, 0.0
    for j in range(len(distance)):
        if gain[j] == zero:
            continue
        reach = margin + distance[j]
        total_here, slope_here = zero, zero
        weight_here, triplets_here, active_here = zero, zero, zero
        for k in range(len(distance)):
            advantage = gain[j] - gain[k]
            counts = one if advantage > zero else zero
            swap = max(advantage, zero) * abs(discount[j] - discount[k])
            hinge = max(reach - distance[k], zero)
            pull = swap * _power(hinge, exponent)
            total_here += pull * hinge
            slope_here += pull
            slopes[k] -= pull
            weight_here += swap
            triplets_here += counts
            active_here += counts if hinge > zero else zero
        slopes[j] += slope_here
        total += total_here
        weight += weight_here
        triplets += triplets_here
        active += active_here
    return total, weight, triplets, active, gamma * slopes
