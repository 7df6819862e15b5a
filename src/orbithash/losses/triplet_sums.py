"""Sums over triplets: of all there are, or of chosen ones. The total carries the gradient."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int16
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbithash.errors import InputError
from orbithash.kernels import triplets as compiled
from orbithash.losses import swaps as plain
from orbithash.losses.distances import compiled_for

Triplets = tuple[Tensor, Tensor, Tensor]


class Sums(NamedTuple):
    """Σ λ·hinge^γ and what it may be divided by."""

    total: Float[Tensor, ""]
    weights: Float[Tensor, ""]
    triplets: Float[Tensor, ""]
    active: Float[Tensor, ""]
    anchors: Float[Tensor, ""]


def sum_all(
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    *,
    margin: float,
    gamma: float,
    weighting: str,
    tie_keys: Float[Tensor, "anchors list"] | None,
) -> Sums:
    """Over all triplets: compiled on the CPU, in plain tensor operations elsewhere."""
    return Sums(
        *_AllTriplets.apply(  # type: ignore[no-untyped-call]
            distances, hamming, grades, tie_keys, margin, gamma, weighting
        )
    )


def sum_chosen(
    triplets: Triplets,
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    *,
    margin: float,
    gamma: float,
    weighting: str,
    tie_keys: Float[Tensor, "anchors list"] | None,
) -> Sums:
    """Over these anchors, positives and negatives alone, weighted by their places in full lists."""
    anchors, positives, negatives = triplets
    places = plain.places_in_lists(hamming, grades, tie_keys, distances.dtype)
    weights = plain.swap_weights(
        places.take(anchors, positives), places.take(anchors, negatives), weighting
    )
    hinge = (margin + distances[anchors, positives] - distances[anchors, negatives]).relu()
    return Sums(
        total=(weights * hinge**gamma).sum(),
        weights=weights.sum(),
        triplets=hinge.new_tensor(len(hinge)),
        active=(hinge > 0).sum().to(hinge.dtype),
        anchors=(anchors.bincount() > 0).sum().to(hinge.dtype),
    )


def check_triplets(
    indices: tuple[Tensor, ...],
    grades: Int16[Tensor, "anchors list"],
    first: int,
    weighting: str,
) -> Triplets:
    """Places in the lists of what really are triplets by their grades.

    Positives and negatives count from `first`: the start of the memory where there is one. A miner
    cannot know which of the memory's images repeats an anchor; such triplets are left out.
    """
    if len(indices) != 3 or len({len(part) for part in indices}) != 1:
        raise InputError(
            "indices_tuple must be (anchors, positives, negatives), three tensors of the same "
            f"length; got {len(indices)} of lengths {[len(part) for part in indices]}; "
            "use a miner of triplets rather than of pairs"
        )
    n_anchors, n_items = len(grades), grades.shape[1] - first
    for name, part, size in zip(
        ("anchors", "positives", "negatives"), indices, (n_anchors, n_items, n_items), strict=True
    ):
        if part.is_floating_point() or part.dtype == torch.bool:
            raise InputError(
                f"the {name} of indices_tuple must be row numbers; got {part.dtype}; "
                "pass integers, such as a mask's nonzero()"
            )
        if len(part) and not 0 <= int(part.min()) <= int(part.max()) < size:
            raise InputError(
                f"the {name} of indices_tuple must be row numbers from 0 to {size - 1}; got "
                f"{int(part.min())} to {int(part.max())}"
            )
    anchors, positives, negatives = (part.to(grades.device, torch.int64) for part in indices)
    positives, negatives = positives + first, negatives + first
    if first:
        ranked = (grades[anchors, positives] >= 0) & (grades[anchors, negatives] >= 0)
        anchors, positives, negatives = anchors[ranked], positives[ranked], negatives[ranked]
    exist = plain.are_triplets(grades[anchors, positives], grades[anchors, negatives], weighting)
    if not exist.all():
        wrong = int((~exist).nonzero()[0])
        triplet = (
            int(anchors[wrong]),
            int(positives[wrong]) - first,
            int(negatives[wrong]) - first,
        )
        raise InputError(
            f"{int((~exist).sum())} of {len(exist)} triplets in indices_tuple are not (anchor, "
            f"related, unrelated) by the labels, the first of them {triplet}; "
            "pass the labels that the miner saw"
        )
    return anchors, positives, negatives


class _AllTriplets(torch.autograd.Function):
    """The slopes by all distances come with the sums; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        distances: Tensor,
        hamming: Tensor,
        grades: Tensor,
        tie_keys: Tensor | None,
        margin: float,
        gamma: float,
        weighting: str,
    ) -> tuple[Tensor, ...]:
        rule: dict[str, Any] = {"margin": margin, "gamma": gamma, "weighting": weighting}
        if compiled_for(distances.device):
            lists = (table.detach().contiguous().numpy() for table in (distances, hamming, grades))
            keys = None if tie_keys is None else tie_keys.detach().contiguous().numpy()
            by_numpy = compiled.triplet_terms(*lists, tie_keys=keys, **rule)
            terms = plain.Terms(*(torch.from_numpy(table) for table in by_numpy))
        else:
            terms = plain.triplet_terms(distances, hamming, grades, tie_keys=tie_keys, **rule)
        ctx.save_for_backward(terms.slopes)
        columns = (terms.totals, terms.weights, terms.triplets, terms.active, terms.triplets > 0)
        sums = tuple(column.sum().to(distances.dtype) for column in columns)
        ctx.mark_non_differentiable(*sums[1:])
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        return (scale * slopes, None, None, None, None, None, None)
