"""Checks of a loss's inputs, with messages that say what to pass instead."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from orbithash.codes import MAX_BITS
from orbithash.errors import InputError
from orbithash.losses.batch import pairs
from orbithash.losses.batch.triplet_tensors import are_triplets


class ValueChecks:
    """Checks of the values of tensors, which raise on the CPU and never wait for another device.

    To read a value from a device, the host waits until all queued work is done. So what does not
    hold there makes the loss NaN; the same batch on the CPU is refused with the reason.
    """

    def __init__(self) -> None:
        self._of_devices: list[Bool[Tensor, ""]] = []

    def require(self, holds: Bool[Tensor, ""], error: Callable[[], InputError]) -> None:
        if not pairs.uses_kernels(holds.device):
            self._of_devices.append(holds)
        elif not holds:
            raise error()

    def nan_if_failed(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Return the loss, or NaN if a check on a device failed; so is its gradient."""
        for holds in self._of_devices:
            loss = loss * torch.where(holds.to(loss.device), 1.0, torch.nan).to(loss.dtype)
        return loss


class ChecksAtOnce(ValueChecks):
    """Checks that raise on every device, and so wait for it."""

    def require(self, holds: Bool[Tensor, ""], error: Callable[[], InputError]) -> None:
        if not holds:
            raise error()


def check_embeddings(
    embeddings: object, name: str = "embeddings", checks: ValueChecks | None = None
) -> None:
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
    low, high = embeddings.detach().aminmax()
    (checks or ChecksAtOnce()).require(  # aminmax propagates NaN, which fails both
        (low >= 0) & (high <= 1), lambda: _embeddings_error(embeddings, name)
    )


def _embeddings_error(embeddings: Tensor, name: str) -> InputError:
    low, high = (bound.item() for bound in embeddings.detach().aminmax())
    if low != low:
        rows = int(embeddings.detach().isnan().any(dim=1).sum())
        return InputError(
            f"{name} contain NaN in {rows} of {len(embeddings)} rows; they must be in [0, 1]; "
            "check for a learning rate that is too high or for NaN in the images"
        )
    return InputError(
        f"{name} must lie in [0, 1]; got values from {low:g} to {high:g}; "
        "end the network with a sigmoid"
    )


def check_labels(
    labels: object, n_images: int, name: str = "labels", checks: ValueChecks | None = None
) -> None:
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
    if labels.ndim == 2 and labels.dtype != torch.bool:
        (checks or ChecksAtOnce()).require(
            ((labels == 0) | (labels == 1)).all(),
            lambda: InputError(
                f"{name} of shape (images, classes) must be 0 or 1; got values from "
                f"{labels.min().item():g} to {labels.max().item():g}; "
                "for one label per image pass integers of shape (images,)"
            ),
        )


def check_memory(
    embeddings: Tensor,
    labels: Tensor | None,
    memory: Tensor | None,
    memory_labels: Tensor | None,
    checks: ValueChecks | None = None,
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
    check_embeddings(memory, "ref_emb", checks)
    if memory.shape[1] != embeddings.shape[1]:
        raise InputError(
            f"ref_emb has {memory.shape[1]} bits and the batch {embeddings.shape[1]}; "
            "empty the memory when the number of bits changes"
        )
    if labels is None or memory_labels is None:
        return pairs.moved(memory, embeddings.device), None
    check_labels(memory_labels, len(memory), "ref_labels", checks)
    if labels.shape[1:] != memory_labels.shape[1:]:
        raise InputError(
            f"labels have the shape {tuple(labels.shape)} and ref_labels "
            f"{tuple(memory_labels.shape)}; both must be integers, or tables of the same classes"
        )
    return pairs.moved(memory, embeddings.device), pairs.moved(memory_labels, embeddings.device)


def check_grades(
    grades: object, skipped: Bool[Tensor, "anchors list"], checks: ValueChecks
) -> Tensor:
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
    if grades.numel():
        lowest, highest = grades.aminmax()  # NaN is both the lowest and the highest number
        checks.require(
            (lowest >= 0) & (highest < float("inf")),
            lambda: InputError(
                "grades must be finite numbers from 0 on, 0 for an unrelated image; got others, or "
                "NaN"
            ),
        )
    return grades.detach()


def check_teacher(
    teacher: object, ref_teacher: object, checks: ValueChecks
) -> Float[Tensor, "list d"]:
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
        # On the CPU, the sum is quick; it may be infinite although all numbers are finite.
        if not pairs.uses_kernels(part.device) or not part.sum().isfinite():
            checks.require(part.isfinite().all(), partial(_not_finite, name))
        vectors.append(part)
    if vectors[0].shape[1] != vectors[-1].shape[1]:
        raise InputError(
            f"teacher has vectors of {vectors[0].shape[1]} numbers and ref_teacher of "
            f"{vectors[-1].shape[1]}; pass vectors of the same space"
        )
    dtype = torch.float64 if vectors[0].dtype == torch.float64 else torch.float32
    return torch.cat([part.detach().to(vectors[0].device, dtype) for part in vectors])


def _not_finite(name: str) -> InputError:
    return InputError(f"{name} contains NaN or infinite numbers; leave these images out")


def check_triplets(
    indices: tuple[Tensor, ...],
    grades: Real[Tensor, "anchors list"],
    offset: int,
    graded: bool,
    checks: ValueChecks,
) -> tuple[Tensor, Tensor, Tensor, Bool[Tensor, " triplets"]]:
    """Check a miner's (anchors, positives, negatives); return them as positions in the lists.

    Positives and negatives are numbered from `offset`, the start of the memory if there is one. A
    miner does not know which rows of the memory are copies of an anchor: the mask that is returned
    last leaves out such triplets.
    """
    if len(indices) != 3 or len({len(part) for part in indices}) != 1:
        raise InputError(
            "indices_tuple must be (anchors, positives, negatives), three tensors of the same "
            f"length; got {len(indices)} of lengths {[len(part) for part in indices]}; "
            "use a miner of triplets rather than of pairs"
        )
    n_anchors, n_items = len(grades), grades.shape[1] - offset
    rows: list[Tensor] = []
    for name, part, size in zip(
        ("anchors", "positives", "negatives"), indices, (n_anchors, n_items, n_items), strict=True
    ):
        if part.is_floating_point() or part.dtype == torch.bool:
            raise InputError(
                f"the {name} of indices_tuple must be row numbers; got {part.dtype}; "
                "pass integers, such as a mask's nonzero()"
            )
        if len(part):
            _check_rows(part, name, size, checks)
        # What failed a check on a device still must not index beyond the end.
        rows.append(pairs.moved(part, grades.device).long().clamp(0, max(0, size - 1)))
    anchors, positives, negatives = rows[0], rows[1] + offset, rows[2] + offset
    positive_grades, negative_grades = grades[anchors, positives], grades[anchors, negatives]
    counted = torch.ones_like(anchors, dtype=torch.bool)
    if offset:
        counted = (positive_grades >= 0) & (negative_grades >= 0)
    invalid = counted & ~are_triplets(positive_grades, negative_grades, graded)

    def error() -> InputError:
        first = int(invalid.nonzero()[0])
        triplet = tuple(int(part[first]) for part in indices)
        kind = "more related, less related" if graded else "related, unrelated"
        return InputError(
            f"{int(invalid.sum())} of {int(counted.sum())} triplets in indices_tuple are not "
            f"(anchor, {kind}) by the labels or grades, the first of them {triplet}; "
            "pass those that the miner saw"
        )

    checks.require(~invalid.any(), error)
    return anchors, positives, negatives, counted


def _check_rows(rows: Tensor, name: str, size: int, checks: ValueChecks) -> None:
    checks.require(
        ((rows >= 0) & (rows < size)).all(),
        lambda: InputError(
            f"the {name} of indices_tuple must be row numbers from 0 to {size - 1}; got "
            f"{int(rows.min())} to {int(rows.max())}"
        ),
    )
