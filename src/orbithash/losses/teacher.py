"""Grades from a teacher: the nearest images in another space are the most relevant ones.

The teacher's vectors may be the features of a frozen backbone, or any others, one per image.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int16, Int64
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch import pairs
from orbithash.losses.batch.inputs import ChecksAtOnce, ValueChecks, check_teacher

NEIGHBOUR_SHARES = (0.015, 0.04, 0.1)  # of a list: grades 3, 2 and 1
ROUNDING = 1e-9  # 0.04 · 175 is above 7 in floats


@torch.no_grad()
def neighbour_grades(
    teacher: Tensor,
    ref_teacher: Tensor | None = None,
    shares: Sequence[float] = NEIGHBOUR_SHARES,
    *,
    skipped: Bool[Tensor, "n list"] | None = None,
    checks: ValueChecks | None = None,
) -> Int16[Tensor, "n list"]:
    """Grade the images of batch and memory by their similarity to each image of the batch.

    Similarity is the cosine of the vectors, less their mean over batch and memory. The grade is the
    number of shares that an image is in: a share is the nearest ceil(share · length) images of an
    anchor's list, so that each holds at least one. Of equally near images the first is nearer.

    Args:
        teacher: A vector for each image of the batch.
        ref_teacher: A vector for each image of the memory.
        shares: Parts of a list, above 0 and at most 1.
        skipped: The images that are not in an anchor's list, with grade 0: by default the anchor.
        checks: The checks of values; by default they raise on every device, and wait for it.

    >>> neighbour_grades(torch.tensor([[1.0, 0.0], [0.9, 0.0], [0.0, 1.0]]), shares=(0.5, 1.0))
    tensor([[0, 2, 1],
            [2, 0, 1],
            [1, 2, 0]], dtype=torch.int16)
    """
    vectors, n = check_teacher(teacher, ref_teacher, checks or ChecksAtOnce()), len(teacher)
    check_shares(shares)
    if skipped is None:
        skipped = torch.eye(n, len(vectors), dtype=torch.bool, device=vectors.device)
    elif skipped.shape != (n, len(vectors)):
        raise InputError(
            f"got teacher vectors of {n} images and {len(vectors) - n} of the memory, but "
            f"{len(skipped)} embeddings and {skipped.shape[1] - len(skipped)} of the memory; pass "
            "a vector for each embedding, those of the memory as ref_teacher"
        )
    with pairs.without_autocast(vectors.device):
        directions = nn.functional.normalize(vectors - vectors.mean(dim=0))
        similarity = directions[:n] @ directions.T
    similarity.masked_fill_(skipped.to(vectors.device), -math.inf)
    lengths = (~skipped).sum(dim=1, keepdim=True).to(vectors.device)
    # By a table for all lengths, as some devices have no double precision.
    all_lengths = torch.arange(len(vectors) + 1)
    counts = [
        pairs.moved(share_counts(share, all_lengths), vectors.device)[lengths] for share in shares
    ]
    most = most_graded(shares, len(vectors))
    nearest_first = similarity.topk(most, dim=1).values
    grades = torch.zeros(similarity.shape, dtype=torch.int16, device=vectors.device)
    for count in counts:
        if most:
            grades += nearest(similarity, count, nearest_first.gather(1, (count - 1).clamp_min(0)))
    return grades


def share_counts(share: float, lengths: Tensor) -> Tensor:
    """Return how many images of lists of these lengths are in a share, rounded up.

    >>> share_counts(0.04, torch.tensor([0, 9, 175]))
    tensor([0, 1, 7])
    """
    return (share * lengths.double() - ROUNDING).ceil().long()


def most_graded(shares: Sequence[float], length: int) -> int:
    """Return how many images of a list of this length are in the largest share.

    >>> most_graded((0.015, 0.04), 175)
    7
    """
    return math.ceil(max(shares) * length - ROUNDING)


def nearest(
    similarity: Float[Tensor, "n list"], count: Int64[Tensor, "n 1"], lowest: Float[Tensor, "n 1"]
) -> Bool[Tensor, "n list"]:
    """Return a mask of the `count` most similar items of each row; of equal ones, the first.

    `lowest` is the lowest of their similarities.
    """
    mask = similarity >= lowest
    # On the CPU, look whether there are ties; usually there are none.
    if pairs.uses_kernels(mask.device) and torch.equal(mask.sum(dim=1, keepdim=True), count):
        return mask
    nearer, equal = similarity > lowest, similarity == lowest
    n_equal = count - nearer.sum(dim=1, keepdim=True)
    return nearer | (equal & (equal.cumsum(dim=1) <= n_equal))


def check_shares(shares: Sequence[float]) -> None:
    if not shares or not all(0 < share <= 1 for share in shares):
        raise InputError(
            f"shares must be parts of a list, above 0 and at most 1; got {tuple(shares)}; "
            f"the default is {NEIGHBOUR_SHARES}"
        )


def takes_teacher(loss: nn.Module) -> bool:
    """Return whether training passes a loss `teacher`, and `ref_teacher` with a memory.

    A loss declares it by an attribute of this name. An argument of `forward` is not enough: the
    order-aware loss accepts a teacher in place of labels, and by default learns from labels.
    """
    return bool(getattr(loss, "takes_teacher", False))
