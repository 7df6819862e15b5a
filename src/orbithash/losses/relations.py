"""Which images of a batch are related, as tensors: the counterpart of `orbithash.relevance`."""

import torch
from jaxtyping import Bool, Float, Int16
from torch import Tensor

NOT_RANKED = -1  # grade of an item that is not in an anchor's list: the anchor, or a copy of it


def labels_in_common(labels: Tensor, others: Tensor) -> Int16[Tensor, "n m"]:
    """Count the labels that two images share: 0 or 1 for integer labels, more for 0-1 tables."""
    if labels.ndim == 1:
        return (labels[:, None] == others[None, :]).to(torch.int16)
    return (labels.float() @ others.float().T).to(torch.int16)


def grades_of_lists(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor,
    memory: Float[Tensor, "m bits"] | None = None,
    memory_labels: Tensor | None = None,
) -> Int16[Tensor, "n list"]:
    """Count the labels that each anchor shares with the images of batch and memory.

    The anchor itself, and copies of it in the memory, have the grade `NOT_RANKED`.
    """
    grades = labels_in_common(labels, labels).fill_diagonal_(NOT_RANKED)
    if memory is None or memory_labels is None:
        return grades
    memory_grades = labels_in_common(labels, memory_labels)
    memory_grades[same_item(embeddings, labels, memory, memory_labels)] = NOT_RANKED
    return torch.cat([grades, memory_grades], dim=1)


def pairs_once(related: Bool[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
    """Return a mask of the pairs (i, j) with i < j."""
    return torch.ones_like(related).triu(diagonal=1)


def same_item(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor,
    memory: Float[Tensor, "m bits"],
    memory_labels: Tensor,
) -> Bool[Tensor, "n m"]:
    """Return a mask of copies: memory items with the embedding and labels of an image in the batch.

    A memory has no ids to compare. Another image with the same labels and exactly the same
    embedding counts as the anchor too.
    """
    same = _equal_rows(embeddings.detach(), memory.detach())
    if labels.ndim == 1:
        return same & (labels[:, None] == memory_labels[None, :])
    return same & _equal_rows(labels, memory_labels)


def _equal_rows(left: Tensor, right: Tensor) -> Bool[Tensor, "n m"]:
    # Number the distinct rows once: pairs then compare a number instead of a row.
    rows = torch.cat([left, right])
    numbers: Tensor = rows.unique(dim=0, return_inverse=True)[1]  # type: ignore[no-untyped-call]
    return numbers[: len(left), None] == numbers[None, len(left) :]
