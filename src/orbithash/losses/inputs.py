"""Checks of a loss's inputs, with messages that say what to pass instead."""

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from orbithash.codes import MAX_BITS
from orbithash.errors import InputError
from orbithash.losses.triplet_tensors import are_triplets


def check_embeddings(embeddings: object, name: str = "embeddings") -> None:
    """Check for floats in [0, 1], one row per image."""
    if not isinstance(embeddings, Tensor):
        raise InputError(
            f"{name} must be a torch tensor; got {type(embeddings).__name__}; "
            "pass the network's output, or convert with torch.as_tensor"
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
            "reduce the number of the network's outputs"
        )
    if embeddings.numel() == 0:
        return
    low, high = (bound.item() for bound in embeddings.detach().aminmax())
    if low != low:  # aminmax propagates NaN
        rows = int(embeddings.detach().isnan().any(dim=1).sum())
        raise InputError(
            f"{name} contain NaN in {rows} of {len(embeddings)} rows; they must be in [0, 1]; "
            "check for a learning rate that is too high or for NaN in the images"
        )
    if low < 0 or high > 1:
        raise InputError(
            f"{name} must lie in [0, 1]; got values from {low:g} to {high:g}; "
            "end the network with a sigmoid"
        )


def check_labels(labels: object, n_images: int, name: str = "labels") -> None:
    """Check for one integer per image, or a 0-1 table with a row per image."""
    if not isinstance(labels, Tensor):
        raise InputError(
            f"{name} must be a torch tensor; got {type(labels).__name__}; "
            "convert the labels with torch.as_tensor"
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
    embeddings: Tensor, labels: Tensor | None, memory: Tensor | None, memory_labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Check a memory against the batch; return both of its tensors on the batch's device.

    Without labels of the batch, the memory has none.
    """
    if memory is None or (memory_labels is None) != (labels is None):
        raise InputError(
            "a memory needs both ref_emb and ref_labels; got only "
            f"{'ref_emb' if memory_labels is None else 'ref_labels'}"
            if labels is not None
            else "got ref_labels without labels of the batch; pass both or neither"
        )
    check_embeddings(memory, "ref_emb")
    if memory.shape[1] != embeddings.shape[1]:
        raise InputError(
            f"ref_emb has {memory.shape[1]} bits and the batch {embeddings.shape[1]}; "
            "empty the memory when the number of bits changes"
        )
    if labels is None or memory_labels is None:
        return memory.to(embeddings.device), None
    check_labels(memory_labels, len(memory), "ref_labels")
    if labels.shape[1:] != memory_labels.shape[1:]:
        raise InputError(
            f"labels have the shape {tuple(labels.shape)} and ref_labels "
            f"{tuple(memory_labels.shape)}; both must be integers, or tables of the same classes"
        )
    return memory.to(embeddings.device), memory_labels.to(embeddings.device)


def check_grades(grades: object, skipped: Bool[Tensor, "anchors list"]) -> Tensor:
    """Check for non-negative numbers, one for each item of each list, and return them."""
    if not isinstance(grades, Tensor):
        raise InputError(
            f"grades must be a torch tensor; got {type(grades).__name__}; "
            "convert them with torch.as_tensor"
        )
    if grades.shape != skipped.shape:
        raise InputError(
            f"grades must have the shape (images, images and memory), {tuple(skipped.shape)}; got "
            f"{tuple(grades.shape)}"
        )
    if grades.dtype == torch.bool:
        return grades.to(torch.int16)
    # NaN is both the lowest and the highest number.
    lowest, highest = grades.aminmax() if grades.numel() else (grades.sum(), grades.sum())
    if not (lowest >= 0 and highest < float("inf")):
        raise InputError(
            "grades must be finite numbers from 0 on, 0 for an unrelated image; got others, or NaN"
        )
    return grades.detach()


def check_teacher(teacher: object, ref_teacher: object) -> Float[Tensor, "list d"]:
    """Check for vectors of finite numbers; return those of batch and memory in one tensor."""
    parts = [teacher] if ref_teacher is None else [teacher, ref_teacher]
    vectors: list[Tensor] = []
    for name, part in zip(("teacher", "ref_teacher"), parts, strict=False):
        if not isinstance(part, Tensor):
            raise InputError(
                f"{name} must be a torch tensor; got {type(part).__name__}; "
                "convert the vectors with torch.as_tensor"
            )
        if part.ndim != 2:
            raise InputError(
                f"{name} must have the shape (images, d); got {tuple(part.shape)}; "
                "pass a vector for each image"
            )
        # The sum is quick; it may be infinite although all numbers are finite.
        if not part.sum().isfinite() and not part.isfinite().all():
            raise InputError(f"{name} contains NaN or infinite numbers; leave these images out")
        vectors.append(part)
    if vectors[0].shape[1] != vectors[-1].shape[1]:
        raise InputError(
            f"teacher has vectors of {vectors[0].shape[1]} numbers and ref_teacher of "
            f"{vectors[-1].shape[1]}; pass vectors of the same space"
        )
    dtype = torch.float64 if vectors[0].dtype == torch.float64 else torch.float32
    return torch.cat([part.detach().to(vectors[0].device, dtype) for part in vectors])


def check_triplets(
    indices: tuple[Tensor, ...],
    grades: Real[Tensor, "anchors list"],
    offset: int,
    graded: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Check a miner's (anchors, positives, negatives); return them as positions in the lists.

    Positives and negatives are numbered from `offset`, the start of the memory if there is one. A
    miner does not know which rows of the memory are copies of an anchor: such triplets are skipped.
    """
    if len(indices) != 3 or len({len(part) for part in indices}) != 1:
        raise InputError(
            "indices_tuple must be (anchors, positives, negatives), three tensors of the same "
            f"length; got {len(indices)} of lengths {[len(part) for part in indices]}; "
            "use a miner of triplets rather than of pairs"
        )
    n_anchors, n_items = len(grades), grades.shape[1] - offset
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
    positives, negatives = positives + offset, negatives + offset
    if offset:
        ranked = (grades[anchors, positives] >= 0) & (grades[anchors, negatives] >= 0)
        anchors, positives, negatives = anchors[ranked], positives[ranked], negatives[ranked]
    valid = are_triplets(grades[anchors, positives], grades[anchors, negatives], graded)
    if not valid.all():
        first = int((~valid).nonzero()[0])
        triplet = (
            int(anchors[first]),
            int(positives[first]) - offset,
            int(negatives[first]) - offset,
        )
        kind = "more related, less related" if graded else "related, unrelated"
        raise InputError(
            f"{int((~valid).sum())} of {len(valid)} triplets in indices_tuple are not (anchor, "
            f"{kind}) by the labels or grades, the first of them {triplet}; "
            "pass those that the miner saw"
        )
    return anchors, positives, negatives
