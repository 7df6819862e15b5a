"""Whether labels allow any triplet: an anchor, an image that is related and one that is not."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from orbithash.errors import InputError
from orbithash.relevance import group_by_labels, related


def check_trainable(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    names: Sequence[str] | None = None,
) -> None:
    """Raise unless every class has two images, or, of several labels, some images are related.

    `names` are those of the classes 0, 1, …, for who reads the error.
    """
    if labels.ndim == 1:
        classes, sizes = np.unique(labels, return_counts=True)

        def name(label: int) -> str:
            return f"class {label}" if names is None else repr(names[label])

        if len(classes) < 2:
            raise InputError(
                f"all {len(labels)} training images are of {name(int(classes[0]))}; "
                "learning from labels needs at least two classes"
            )
        if sizes.min() < 2:
            alone = classes[sizes < 2]
            raise InputError(
                f"{len(alone)} of {len(classes)} classes have one training image, the first is "
                f"{name(int(alone[0]))}; a class needs two to learn from: add images, or leave "
                "these rows out of train"
            )
        return
    if labels.sum(axis=0).max(initial=0) < 2:
        raise InputError("no two training images share a label; learning needs some that do")
    sets = group_by_labels(labels.astype(np.int64)).labels
    # Row by row: nearly always the first one settles it.
    if all(related(row[None], sets).all() for row in sets):
        raise InputError("all training images share a label; learning needs some that do not")
