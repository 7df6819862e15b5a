"""Who is related to whom in a batch, as tensors: the counterpart of `orbithash.relevance`."""

import torch
from jaxtyping import Bool, Float, Int16
from torch import Tensor

NOT_RANKED = -1  # the grade of an item that is left out of an anchor's list: the anchor itself


def labels_in_common(labels: Tensor, others: Tensor) -> Int16[Tensor, "n m"]:
    """How many labels two images share: 0 or 1 for integer labels, more for 0-1 tables."""
    if labels.ndim == 1:
        return (labels[:, None] == others[None, :]).to(torch.int16)
    return (labels.float() @ others.float().T).to(torch.int16)


def grades_of_lists(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor,
    memory: Float[Tensor, "m bits"] | None = None,
    memory_labels: Tensor | None = None,
) -> Int16[Tensor, "n list"]:
    """Labels in common of each anchor with batch and memory; `NOT_RANKED` for the anchor itself."""
    grades = labels_in_common(labels, labels).fill_diagonal_(NOT_RANKED)
    if memory is None or memory_labels is None:
        return grades
    of_memory = labels_in_common(labels, memory_labels)
    of_memory[same_item(embeddings, labels, memory, memory_labels)] = NOT_RANKED
    return torch.cat([grades, of_memory], dim=1)


def same_item(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor,
    memory: Float[Tensor, "m bits"],
    memory_labels: Tensor,
) -> Bool[Tensor, "n m"]:
    """Where the memory repeats an image of the batch: same embedding to the last bit, same labels.

    A memory carries no ids, so this is all there is to tell. Another image of the same labels with
    just the same embedding is taken for the anchor too.
    """
    same = _equal_rows(embeddings.detach(), memory.detach())
    if labels.ndim == 1:
        return same & (labels[:, None] == memory_labels[None, :])
    return same & _equal_rows(labels, memory_labels)


def _equal_rows(left: Tensor, right: Tensor) -> Bool[Tensor, "n m"]:
    # Distinct rows are numbered once, so that pairs compare a number instead of a row.
    rows = torch.cat([left, right])
    numbers: Tensor = rows.unique(dim=0, return_inverse=True)[1]  # type: ignore[no-untyped-call]
    return numbers[: len(left), None] == numbers[None, len(left) :]
