"""Triplets of graded relevance, compiled: the part of `sums` for ΔNDCG.

Triplets are (anchor, higher grade, lower grade). An anchor's items are sorted by grade, so that the
items of lower grades than one are those before its level, the items of its grade.
"""

import numpy as np
from numba import njit, prange

from orbithash.kernels.threads import parallel_njit
from orbithash.kernels.triplets.pair_loops import add_graded_pairs, pairwise_sum_inplace
from orbithash.kernels.triplets.rank_lists import positions_by_key, rank_list
from orbithash.kernels.triplets.sweeps import sweep_pairs, sweeping_pays


@parallel_njit
def sum_graded(  # type: ignore[no-untyped-def]
    distances,
    distance_keys,
    hamming,
    grades,
    keys,
    key_bits,
    margin,
    gamma,
    by_ndcg,
    out_losses,
    out_weights,
    out_triplets,
    out_active,
    out_gradients,
):
    """Sum over the triplets (anchor, higher grade, lower grade), weighted by ΔNDCG or by 1."""
    discounts = _discounts(grades.shape[1])
    # The body is a function: in a parallel loop it takes much longer to compile.
    for anchor in prange(len(distances)):
        (
            out_losses[anchor],
            out_weights[anchor],
            out_triplets[anchor],
            out_active[anchor],
        ) = _sum_graded_list(
            distances[anchor],
            distance_keys[anchor],
            hamming[anchor],
            grades[anchor],
            keys[anchor],
            key_bits,
            margin,
            gamma,
            by_ndcg,
            discounts,
            out_gradients[anchor],
        )


@njit(cache=True, nogil=True)
def _sum_graded_list(  # type: ignore[no-untyped-def]
    distances,
    distance_keys,
    hamming,
    grade,
    keys,
    key_bits,
    margin,
    gamma,
    by_ndcg,
    discounts,
    out_gradient,
):
    """Return the loss, Σ λ, and the numbers of triplets and of active ones of one anchor's list."""
    items = np.flatnonzero(grade >= 0)
    n_positives = np.count_nonzero(grade > 0)
    if n_positives == 0:
        return 0.0, 0.0, 0, 0.0
    # Without weights, any order gives the same sums.
    order = rank_list(items, hamming, keys, key_bits) if by_ndcg else items
    ranks = _ranks_by_grade(order, grade, n_positives)
    items = order[ranks]
    gains = _gains(grade[items], discounts, n_positives)
    if not by_ndcg:
        gains[:] = 0.0  # λ = 1 + 0
    loss, weights, n_triplets, active, gradients = _sum_graded_pairs(
        distances[items],
        distance_keys[items],
        ranks,
        grade[items],
        gains,
        discounts[ranks],
        by_ndcg,
        n_positives,
        margin,
        gamma,
    )
    for i in range(len(items)):
        out_gradient[items[i]] = gradients[i]
    return loss, weights, n_triplets, float(active)


@njit(cache=True, nogil=True)
def _discounts(n):  # type: ignore[no-untyped-def]
    """Return what the gain at each rank, from 0, is multiplied by in the DCG."""
    return 1 / np.log2(np.arange(n) + 2)


@njit(cache=True, nogil=True)
def _ranks_by_grade(order, grade, n_positives):  # type: ignore[no-untyped-def]
    """Return the ranks, from 0, of the items of a rank list, those of the lowest grade first.

    Only items above grade 0 are sorted, mostly a small part of the list.
    """
    ranks = np.empty(len(order), np.int64)
    rest, positive = 0, len(order) - n_positives
    for rank in range(len(order)):
        if grade[order[rank]] > 0:
            ranks[positive] = rank
            positive += 1
        else:
            ranks[rest] = rank
            rest += 1
    positives = ranks[rest:].copy()
    ranks[rest:] = positives[np.argsort(grade[order[positives]], kind="mergesort")]
    return ranks


@njit(cache=True, nogil=True)
def _gains(grade, discounts, n_positives):  # type: ignore[no-untyped-def]
    """Return 2^grade − 1, divided by the DCG of the ideal list; grades are in ascending order."""
    gains = np.zeros(len(grade))
    highest = np.float64(grade[-1])
    ideal = 0.0
    for i in range(n_positives):
        place = len(grade) - 1 - i
        if i > 0 and grade[place] == grade[place + 1]:
            gains[place] = gains[place + 1]
        else:  # relative to the highest, so that high grades do not overflow
            gains[place] = 2.0 ** (grade[place] - highest) - 2.0**-highest
        ideal += gains[place] * discounts[i]
    return gains / ideal if ideal > 0 else gains


@njit(cache=True, nogil=True)
def _sum_graded_pairs(  # type: ignore[no-untyped-def]
    distances, distance_keys, ranks, grade, gains, discounts, by_ndcg, n_positives, margin, gamma
):
    """Sum λ·hinge^γ over all pairs (j, k) of one rank list with grade j > grade k.

    All arrays are in the order of the grades, from the lowest, so that the items of lower grades
    than j come first, and every run of them starts where memory is aligned. Returns the loss, Σ λ,
    the numbers of pairs and of active pairs, and the gradient of the loss.
    """
    kind = distances.dtype.type
    least, exponent = kind(0 if by_ndcg else 1), gamma - kind(1)
    narrow_gains, narrow_discounts = (
        gains.astype(distances.dtype),
        discounts.astype(distances.dtype),
    )
    gradients, of_sweeps = np.zeros_like(distances), np.zeros(len(distances))
    # Per item of lower grade, summed over those of higher grades.
    losses, weights = np.zeros_like(distances), np.zeros_like(distances)
    active = np.zeros_like(distances)
    pair_gradients = np.zeros_like(distances)  # of one j, rewritten by the next
    by_distance = np.empty(0, np.int64)  # sorted when the first level needs it
    loss, weight, pairs, n_active = 0.0, 0.0, 0, 0
    n = len(distances)
    start = n - n_positives  # of a level
    while start < n:
        stop = start + 1
        while stop < n and grade[stop] == grade[start]:
            stop += 1
        pairs += (stop - start) * start
        if (gamma == 1 or gamma == 2) and sweeping_pays(stop - start, start):
            if len(by_distance) == 0:
                by_distance = positions_by_key(distance_keys)
            sums = _sweep_level(
                distances, by_distance, ranks, gains, discounts, by_ndcg, start, stop, margin, gamma
            )
            loss += sums[0]
            weight += sums[1]
            n_active += sums[2]
            of_sweeps[start:stop] += sums[3]
            of_sweeps[:start] += sums[4]
        elif start > 0:
            for j in range(start, stop):
                add_graded_pairs(
                    margin + distances[j],
                    distances[:start],
                    narrow_gains[j],
                    narrow_gains[:start],
                    narrow_discounts[j],
                    narrow_discounts[:start],
                    least,
                    exponent,
                    pair_gradients[:start],
                    gradients[:start],
                    losses[:start],
                    weights[:start],
                    active[:start],
                )
                gradients[j] += pairwise_sum_inplace(pair_gradients[:start])
        start = stop
    # The gradients of pairs lack the factor γ so far.
    return (
        loss + pairwise_sum_inplace(losses),
        weight + pairwise_sum_inplace(weights),
        pairs,
        n_active + pairwise_sum_inplace(active),
        gamma * gradients + of_sweeps,
    )


@njit(cache=True, nogil=True)
def _sweep_level(  # type: ignore[no-untyped-def]
    distances, by_distance, ranks, gains, discounts, by_ndcg, start, stop, margin, gamma
):
    """Sum over the pairs of a level and all lower grades, by sweeps in order of distance.

    With w = gain(j) − gain(k), ΔNDCG is w·D(j) − w·D(k) if j ranks first, and its negative if k
    does. Returns the loss, Σ λ, the number of active pairs, and the gradients of both.
    """
    n_level = stop - start
    level_order, lower_order = np.empty(n_level, np.int64), np.empty(start, np.int64)
    n_in_level, n_lower = 0, 0
    for place in by_distance:
        if place < start:
            lower_order[n_lower] = place
            n_lower += 1
        elif place < stop:
            level_order[n_in_level] = place - start
            n_in_level += 1
    # Items of one grade are in the order of their ranks.
    n_before = np.searchsorted(ranks[start:stop], ranks[:start])
    level_terms, lower_terms = np.ones((2, n_level)), np.zeros((2, start))
    factors = np.ones(start)
    weights = float(n_level * start)
    if by_ndcg:
        factors = gains[start] - gains[:start]
        level_terms[0], level_terms[1] = -discounts[start:stop], discounts[start:stop]
        lower_terms[0] = factors * discounts[:start]
        lower_terms[1] = -lower_terms[0]
        weights = 0.0
        first = np.concatenate((np.zeros(1), discounts[start:stop].cumsum()))  # Σ D of the first
        for k in range(start):
            n_first = n_before[k]
            before = first[n_first] - n_first * discounts[k]
            after = (n_level - n_first) * discounts[k] - (first[n_level] - first[n_first])
            weights += factors[k] * (before + after)
    loss, active, level_gradients, lower_gradients = sweep_pairs(
        (margin + distances[start:stop]).astype(np.float64),
        level_order,
        distances[:start].astype(np.float64),
        lower_order,
        n_before,
        level_terms,
        lower_terms,
        factors,
        gamma == 2,
    )
    return loss, weights, active, gamma * level_gradients, gamma * lower_gradients
