"""Whether labels allow any triplet: an anchor, an image that is related and one that is not."""

import numpy as np
from jaxtyping import Bool, Int

from orbithash.errors import InputError
from orbithash.relevance import group_by_labels, related


def check_trainable(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
) -> None:
    """Raise unless every class has two images, or, of several labels, some images are related."""
    if labels.ndim == 1:
        classes, sizes = np.unique(labels, return_counts=True)
        if len(classes) < 2:
            raise InputError(
                f"all {len(labels)} training images are of class {classes[0]}; "
                "learning from labels needs at least two classes"
            )
        if sizes.min() < 2:
            alone = classes[sizes < 2]
            raise InputError(
                f"{len(alone)} of {len(classes)} classes have one training image, the first is "
                f"class {alone[0]}; a class needs two to learn from: add images, or leave these "
                "rows out of train"
            )
        return
    if labels.sum(axis=0).max(initial=0) < 2:
        raise InputError("no two training images share a label; learning needs some that do")
    sets = group_by_labels(labels.astype(np.int64)).labels
    # Row by row: nearly always the first one settles it.
    if all(related(row[None], sets).all() for row in sets):
        raise InputError("all training images share a label; learning needs some that do not")
