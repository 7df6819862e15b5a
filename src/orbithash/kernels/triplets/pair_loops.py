"""The innermost loops over the triplets of an anchor, compiled: they must vectorise.

Each pairs one item with a run of others, and adds to sums per item of the run.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def add_pairs(  # type: ignore[no-untyped-def]
    threshold,
    negative_distances,
    positive_term,
    negative_terms,
    exponent,
    pair_gradients,
    negative_gradients,
    losses,
    active,
):
    """Pair one positive with a run of negatives: the innermost loop, which must vectorise.

    hinge = threshold − distance of the negative, where the threshold is the margin plus the
    distance of the positive. A pair's gradient, without the factor γ, is λ·hinge^(γ−1).

    There is no reduction over the run, so the loop vectorises without `fastmath`, whose sums can
    differ from one compilation to the next.
    """
    zero, one = negative_distances.dtype.type(0), negative_distances.dtype.type(1)
    for k in range(len(negative_distances)):
        hinge = max(threshold - negative_distances[k], zero)
        gradient = (positive_term + negative_terms[k]) * power(hinge, exponent)
        pair_gradients[k] = gradient
        negative_gradients[k] -= gradient
        losses[k] += gradient * hinge
        active[k] += one if hinge > zero else zero


@njit(cache=True, nogil=True)
def add_graded_pairs(  # type: ignore[no-untyped-def]
    threshold,
    lower_distances,
    gain,
    lower_gains,
    discount,
    lower_discounts,
    least,
    exponent,
    pair_gradients,
    lower_gradients,
    losses,
    weights,
    active,
):
    """Pair one item with all of lower grades, as `add_pairs` does: this loop must vectorise, too.

    λ = (difference of gains) · |difference of discounts|, plus `least`: 0, or 1 where the gains
    are 0 because triplets are not weighted.
    """
    zero, one = lower_distances.dtype.type(0), lower_distances.dtype.type(1)
    for k in range(len(lower_distances)):
        weight = least + (gain - lower_gains[k]) * abs(discount - lower_discounts[k])
        hinge = max(threshold - lower_distances[k], zero)
        gradient = weight * power(hinge, exponent)
        pair_gradients[k] = gradient
        lower_gradients[k] -= gradient
        losses[k] += gradient * hinge
        weights[k] += weight
        active[k] += one if hinge > zero else zero


@njit(cache=True, nogil=True)
def pairwise_sum_inplace(values):  # type: ignore[no-untyped-def]
    """Return the sum, adding the second half to the first until one is left. Destroys `values`."""
    n = len(values)
    while n > 1:
        half = (n + 1) // 2
        front, back = values[: n - half], values[half:n]
        for i in range(len(front)):
            front[i] += back[i]
        n = half
    return values[0]


@njit(cache=True, nogil=True, inline="always")
def power(hinge, exponent):  # type: ignore[no-untyped-def]
    """Return hinge^(γ−1), and 0 where the hinge is 0.

    γ = 1, 2 and 3 need no `pow`; the compiler moves the choice between them out of the loops.
    """
    if exponent == 1:
        return hinge
    if exponent == 0:
        return np.sign(hinge)
    if exponent == 2:
        return hinge * hinge
    return hinge**exponent
