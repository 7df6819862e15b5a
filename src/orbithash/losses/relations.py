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

    A memory carries no ids, so this is all there is to tell. Another image with just the same
    embedding is taken for the anchor too; at distance 0 it has no gradient to give.
    """
    rows = torch.cat([embeddings.detach(), memory.detach()]).double()
    # One number per row finds the few pairs that are worth comparing in full.
    weights = torch.linspace(1, 2, rows.shape[1], dtype=rows.dtype, device=rows.device)
    fingerprints = (rows * weights).sum(dim=1)
    n = len(embeddings)
    same = fingerprints[:n, None] == fingerprints[None, n:]
    anchors, items = same.nonzero(as_tuple=True)
    equal = (embeddings[anchors] == memory[items]).all(dim=1)
    same_label = labels[anchors] == memory_labels[items]
    equal &= same_label.all(dim=1) if same_label.ndim == 2 else same_label
    same[anchors, items] = equal
    return same
