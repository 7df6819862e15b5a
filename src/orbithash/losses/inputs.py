"""What a loss is given, checked once and said plainly when it cannot be used."""

import torch
from torch import Tensor

from orbithash.codes import MAX_BITS
from orbithash.errors import InputError


def check_embeddings(embeddings: object, name: str = "embeddings") -> None:
    """Floats in [0, 1], one row per image."""
    if not isinstance(embeddings, Tensor):
        raise InputError(
            f"{name} must be a torch tensor; got {type(embeddings).__name__}; "
            "pass the network's output, or torch.as_tensor of the numbers"
        )
    if embeddings.ndim != 2:
        raise InputError(
            f"{name} must have the shape (images, bits); got {tuple(embeddings.shape)}; "
            "pass the network's output for a whole batch"
        )
    if not embeddings.is_floating_point():
        raise InputError(
            f"{name} must be floats in [0, 1]; got {embeddings.dtype}; "
            "pass the output of the sigmoid, not the bits"
        )
    if embeddings.shape[1] > MAX_BITS:
        raise InputError(
            f"{name} have {embeddings.shape[1]} bits; codes have at most {MAX_BITS}; "
            "let the network output fewer"
        )
    if embeddings.numel() == 0:
        return
    low, high = (bound.item() for bound in embeddings.detach().aminmax())
    if low != low:  # aminmax passes NaN on
        rows = int(embeddings.detach().isnan().any(dim=1).sum())
        raise InputError(
            f"{name} hold NaN in {rows} of {len(embeddings)} rows, and numbers in [0, 1] are "
            "needed; look for a learning rate that is too high or for NaN in the images"
        )
    if low < 0 or high > 1:
        raise InputError(
            f"{name} must lie in [0, 1]; got values from {low:g} to {high:g}; "
            "let the network end with a sigmoid"
        )


def check_labels(labels: object, n_images: int, name: str = "labels") -> None:
    """Integers, one per image, or a 0-1 table with a row per image and a column per class."""
    if not isinstance(labels, Tensor):
        raise InputError(
            f"{name} must be a torch tensor; got {type(labels).__name__}; "
            "pass torch.as_tensor of the labels"
        )
    if labels.ndim not in (1, 2):
        raise InputError(
            f"{name} must have the shape (images,) or (images, classes); got {tuple(labels.shape)}"
        )
    if len(labels) != n_images:
        raise InputError(
            f"got {len(labels)} {name} for {n_images} embeddings; pass one label, or one row of "
            "labels, for each embedding"
        )
    if labels.ndim == 1 and (labels.is_floating_point() or labels.dtype == torch.bool):
        raise InputError(
            f"{name} of shape (images,) must be integers; got {labels.dtype}; "
            "number the classes, or pass a 0-1 table of shape (images, classes)"
        )
    if (
        labels.ndim == 2
        and labels.dtype != torch.bool
        and not ((labels == 0) | (labels == 1)).all()
    ):
        raise InputError(
            f"{name} of shape (images, classes) must be 0 or 1; got values from "
            f"{labels.min().item():g} to {labels.max().item():g}; "
            "for one label per image pass integers of shape (images,)"
        )


def check_memory(
    embeddings: Tensor, labels: Tensor, memory: Tensor | None, memory_labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A memory's embeddings and labels, checked, on the device of the batch's."""
    if memory is None or memory_labels is None:
        raise InputError(
            "a memory needs both ref_emb and ref_labels; got only "
            f"{'ref_emb' if memory_labels is None else 'ref_labels'}"
        )
    check_embeddings(memory, "ref_emb")
    check_labels(memory_labels, len(memory), "ref_labels")
    if memory.shape[1] != embeddings.shape[1]:
        raise InputError(
            f"ref_emb has {memory.shape[1]} bits and the batch {embeddings.shape[1]}; "
            "empty the memory when the number of bits changes"
        )
    if labels.shape[1:] != memory_labels.shape[1:]:
        raise InputError(
            f"labels have the shape {tuple(labels.shape)} and ref_labels "
            f"{tuple(memory_labels.shape)}; both must be integers, or tables of the same classes"
        )
    return memory.to(embeddings.device), memory_labels.to(embeddings.device)
