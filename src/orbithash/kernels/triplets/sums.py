"""All triplets of a batch, compiled: loss, weights and gradient, without storing a triplet.

In the rank list of one anchor, let R be the number of positives, c(p) the number of positives at
ranks 1 … p, and S(p) the sum of 1/rank over these. The weight λ of a triplet is by how much the
average precision (AP) changes when the positive, at rank j, and the negative, at rank k, swap:

    k < j (misranked)   R·λ = a(k) + b(j)    a(k) = (c(k) + 1)/k − S(k)    b(j) = S(j−1) − c(j)/j
    j < k (in order)    R·λ = e(j) + f(k)    e(j) = c(j)/j − S(j)          f(k) = S(k) − c(k)/k

Each case is a term of the positive plus a term of the negative. An anchor therefore needs one sort
and one pass over its list. Each triplet then costs a sum, a hinge and a product, in a loop without
branches. For γ = 1 and 2, a long list with many positives is summed by `sweeps` instead,
without going through its triplets.

`losses/batch/triplet_tensors.py` computes the same in tensor operations, for other devices and as
a reference.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from orbithash.kernels.threads import parallel_njit, threads_for
from orbithash.kernels.triplets.graded_sums import sum_graded
from orbithash.kernels.triplets.pair_loops import add_pairs, pairwise_sum_inplace
from orbithash.kernels.triplets.rank_lists import positions_by_key, rank_list
from orbithash.kernels.triplets.sweeps import sweep_pairs, sweeping_pays

MISRANKED, IN_ORDER = 0, 1  # rows of the arrays of terms


class AnchorSums(NamedTuple):
    """Sums over the triplets of each anchor, in arrays (anchors,), and the gradients."""

    losses: np.ndarray  # Σ λ·hinge^γ
    weights: np.ndarray  # Σ λ
    triplets: np.ndarray  # number of triplets
    active: np.ndarray  # number of triplets with hinge > 0
    gradients: np.ndarray  # (anchors, n): of each anchor's loss with respect to its distances


def triplet_terms(
    distances: np.ndarray,
    hamming: np.ndarray,
    grades: np.ndarray,
    *,
    margin: float,
    gamma: float,
    weighting: str,
    graded: bool,
    tie_keys: np.ndarray | None,
) -> AnchorSums:
    """Sum over all triplets of every anchor; all arrays are (anchors, n).

    `grades` are −1 where the item is not in the anchor's rank list: the anchor itself, or a copy
    of it in the memory. Triplets are (anchor, grade above 0, grade 0), weighted by "ap" or "none";
    if `graded`, they are (anchor, higher grade, lower grade), weighted by "ndcg" or "none". Items
    at the same Hamming distance are ordered by `tie_keys`, non-negative floats of the type of the
    distances, then by position.
    """
    n_anchors = len(distances)
    sums = AnchorSums(
        losses=np.zeros(n_anchors),
        weights=np.zeros(n_anchors),
        triplets=np.zeros(n_anchors),
        active=np.zeros(n_anchors),
        gradients=np.zeros_like(distances),
    )
    # As scalars of the arrays' type, so that numba does not promote float32 to float64.
    margin, gamma = distances.dtype.type(margin), distances.dtype.type(gamma)
    # A non-negative float sorts like the unsigned integer with the same bits. Without tie keys,
    # `key_bits` is 0 and `keys` is a placeholder.
    unsigned = np.dtype(f"u{distances.itemsize}")
    distance_keys = distances.view(unsigned)
    keys = distance_keys if tie_keys is None else tie_keys.view(unsigned)
    key_bits = 0 if tie_keys is None else 8 * distances.itemsize
    lists = (distances, distance_keys, hamming, grades, keys, key_bits)
    rule = (margin, gamma, weighting != "none")
    with threads_for(distances.size):
        if graded:
            # Grades in one type: the loop is compiled once for integers and floats.
            sum_graded(*lists[:3], grades.astype(distances.dtype), *lists[4:], *rule, *sums)
        else:
            _sum_binary(*lists, *rule, *sums)
    return sums


@parallel_njit
def _sum_binary(  # type: ignore[no-untyped-def]
    distances,
    distance_keys,
    hamming,
    grades,
    keys,
    key_bits,
    margin,
    gamma,
    by_ap,
    out_losses,
    out_weights,
    out_triplets,
    out_active,
    out_gradients,
):
    """Sum over the triplets (anchor, related, unrelated), weighted by ΔAP or by 1."""
    # The body is a function: in a parallel loop it takes much longer to compile.
    for anchor in prange(len(distances)):
        (
            out_losses[anchor],
            out_weights[anchor],
            out_triplets[anchor],
            out_active[anchor],
        ) = _sum_binary_list(
            distances[anchor],
            distance_keys[anchor],
            hamming[anchor],
            grades[anchor],
            keys[anchor],
            key_bits,
            margin,
            gamma,
            by_ap,
            out_gradients[anchor],
        )


@njit(cache=True, nogil=True)
def _sum_binary_list(  # type: ignore[no-untyped-def]
    distances, distance_keys, hamming, grade, keys, key_bits, margin, gamma, by_ap, out_gradient
):
    """Return the loss, Σ λ, and the numbers of triplets and of active ones of one anchor's list."""
    items = np.flatnonzero(grade >= 0)
    n_positives = np.count_nonzero(grade > 0)
    n_negatives = len(items) - n_positives
    if n_positives == 0 or n_negatives == 0:
        return 0.0, 0.0, 0, 0.0
    # Without weights, any order gives the same sums.
    order = rank_list(items, hamming, keys, key_bits) if by_ap else items
    positives, negatives, n_negatives_before, positive_terms, negative_terms = _swap_terms(
        order, grade, n_positives
    )
    if not by_ap:
        positive_terms[:], negative_terms[:] = 1.0, 0.0  # λ = 1 + 0
    weights = _sum_weights(n_negatives_before, positive_terms, negative_terms)
    n_triplets = n_positives * n_negatives
    if (gamma == 1 or gamma == 2) and sweeping_pays(n_positives, n_negatives):
        sums = _sweep(
            distances,
            distance_keys,
            positives,
            negatives,
            n_negatives_before,
            positive_terms,
            negative_terms,
            margin,
            gamma,
        )
        _write(out_gradient, positives, sums[2], negatives, sums[3])
        return sums[0], weights, n_triplets, float(sums[1])
    pair_sums = _sum_pairs(
        distances[positives],
        distances[negatives],
        n_negatives_before,
        positive_terms.astype(distances.dtype),
        negative_terms.astype(distances.dtype),
        margin,
        gamma,
    )
    _write(out_gradient, positives, pair_sums[2], negatives, pair_sums[3])
    return float(pair_sums[0]), weights, n_triplets, float(pair_sums[1])


@njit(cache=True, nogil=True)
def _write(out, positives, positive_gradients, negatives, negative_gradients):  # type: ignore[no-untyped-def]
    for j in range(len(positives)):
        out[positives[j]] = positive_gradients[j]
    for k in range(len(negatives)):
        out[negatives[k]] = negative_gradients[k]


@njit(cache=True, nogil=True)
def _sweep(  # type: ignore[no-untyped-def]
    distances,
    distance_keys,
    positives,
    negatives,
    n_negatives_before,
    positive_terms,
    negative_terms,
    margin,
    gamma,
):
    """Sum over all pairs of a long list, as `_sum_pairs` does, by sweeps in order of distance."""
    n_before = np.empty(len(negatives), np.int64)
    k = 0
    for j in range(len(positives)):
        n_before[k : n_negatives_before[j]] = j
        k = n_negatives_before[j]
    n_before[k:] = len(positives)
    # The margin is added in the type of the distances: the same pairs are active.
    loss, active, positive_gradients, negative_gradients = sweep_pairs(
        (margin + distances[positives]).astype(np.float64),
        positions_by_key(distance_keys[positives]),
        distances[negatives].astype(np.float64),
        positions_by_key(distance_keys[negatives]),
        n_before,
        positive_terms,
        negative_terms,
        np.ones(len(negatives)),
        gamma == 2,
    )
    return loss, active, gamma * positive_gradients, gamma * negative_gradients


@njit(cache=True, nogil=True)
def _swap_terms(order, grade, n_positives):  # type: ignore[no-untyped-def]
    """Split a rank list into positives and negatives, each with its terms of λ.

    Returns the items of both in rank order, the number of negatives that rank before each positive,
    b/R and e/R of each positive's rank as the rows of `positive_terms`, a/R and f/R of each
    negative's rank as the rows of `negative_terms`.
    """
    n_negatives = len(order) - n_positives
    positives, n_negatives_before = np.empty(n_positives, np.int64), np.empty(n_positives, np.int64)
    negatives = np.empty(n_negatives, np.int64)
    positive_terms, negative_terms = np.empty((2, n_positives)), np.empty((2, n_negatives))
    R = n_positives
    c, S = 0, 0.0  # c(rank − 1) and S(rank − 1); updated for each positive below
    for i in range(len(order)):
        rank = i + 1
        if grade[order[i]] > 0:
            positives[c], n_negatives_before[c] = order[i], i - c
            positive_terms[MISRANKED, c] = (S - (c + 1) / rank) / R  # b(rank)
            S += 1 / rank
            positive_terms[IN_ORDER, c] = ((c + 1) / rank - S) / R  # e(rank)
            c += 1
        else:
            place = i - c  # among the negatives
            negatives[place] = order[i]
            negative_terms[MISRANKED, place] = ((c + 1) / rank - S) / R  # a(rank)
            negative_terms[IN_ORDER, place] = (S - c / rank) / R  # f(rank)
    return positives, negatives, n_negatives_before, positive_terms, negative_terms


@njit(cache=True, nogil=True)
def _sum_pairs(  # type: ignore[no-untyped-def]
    positive_distances,
    negative_distances,
    n_negatives_before,
    positive_terms,
    negative_terms,
    margin,
    gamma,
):
    """Sum λ·hinge^γ over all pairs of a positive and a negative of one anchor.

    Returns the sum, the number of active pairs, and the gradient of the sum with respect to the
    distances of the positives and of the negatives. Positives and negatives are in rank order, so
    the first `n_negatives_before[j]` negatives are misranked with respect to positive j, and the
    others in order.
    """
    exponent = gamma - positive_distances.dtype.type(1)
    positive_gradients = np.zeros_like(positive_distances)
    # Per negative, summed over the positives.
    negative_gradients = np.zeros_like(negative_distances)
    losses, active = np.zeros_like(negative_distances), np.zeros_like(negative_distances)
    pair_gradients = np.zeros_like(negative_distances)  # of one positive, rewritten by the next
    for j in range(len(positive_distances)):
        for case in range(2):
            start, stop = (
                (0, n_negatives_before[j])
                if case == MISRANKED
                else (n_negatives_before[j], len(negative_distances))
            )
            add_pairs(
                margin + positive_distances[j],
                negative_distances[start:stop],
                positive_terms[case, j],
                negative_terms[case, start:stop],
                exponent,
                pair_gradients[start:stop],
                negative_gradients[start:stop],
                losses[start:stop],
                active[start:stop],
            )
        positive_gradients[j] = pairwise_sum_inplace(pair_gradients)
    # The gradients lack the factor γ so far.
    return (
        pairwise_sum_inplace(losses),
        pairwise_sum_inplace(active),
        gamma * positive_gradients,
        gamma * negative_gradients,
    )


@njit(cache=True, nogil=True)
def _sum_weights(n_negatives_before, positive_terms, negative_terms):  # type: ignore[no-untyped-def]
    """Return Σ λ over all pairs of one anchor.

    `misranked` is Σ a(k) over the negatives before positive j, `in_order` is Σ f(k) over the
    others; both are updated from one positive to the next.
    """
    n_negatives = negative_terms.shape[1]
    misranked, in_order = 0.0, negative_terms[IN_ORDER].sum()
    total, k = 0.0, 0
    for j in range(len(n_negatives_before)):
        while k < n_negatives_before[j]:
            misranked += negative_terms[MISRANKED, k]
            in_order -= negative_terms[IN_ORDER, k]
            k += 1
        total += misranked + k * positive_terms[MISRANKED, j]
        total += in_order + (n_negatives - k) * positive_terms[IN_ORDER, j]
    return total
