"""Images that come with the install: the demo's and the tests'."""

import numpy as np
from jaxtyping import Int, Int64
from sklearn.datasets import load_digits

from orbithash.data.base import LabelledImages, Split
from orbithash.errors import InputError

QUERIES_PER_CLASS = 40
TRAIN_PER_CLASS = 40
VALIDATION_PER_CLASS = 40


def digits(seed: int = 0) -> LabelledImages:
    """1,797 handwritten digits of 8 × 8 pixels, from scikit-learn (UCI, Alpaydin and Kaynak 1998).

    Of each digit 40 images are queries and all others are the database. Training sees 40 per digit
    of the database and settings are chosen on 40 more; the rest of the database no method has seen,
    as in the paper's protocols, so that a method must generalise and cannot memorise.
    """
    bunch = load_digits()
    images = (bunch.images[:, None] / 16.0).astype(np.float32)
    labels = bunch.target.astype(np.int64)
    query, train, validation, unseen = stratified_parts(
        labels, [QUERIES_PER_CLASS, TRAIN_PER_CLASS, VALIDATION_PER_CLASS], seed=seed
    )
    database = np.sort(np.concatenate([train, validation, unseen]))
    return LabelledImages(
        images=images,
        labels=labels,
        classes=tuple(str(name) for name in bunch.target_names),
        split=Split(train=train, query=query, database=database, validation=validation),
    )


def stratified_parts(
    labels: Int[np.ndarray, " n"], per_class: list[int], *, seed: int
) -> list[Int64[np.ndarray, " part"]]:
    """Disjoint sets of row numbers with so many images of every class, and the rest as the last.

    >>> [part.tolist() for part in stratified_parts(np.array([0, 0, 0, 1, 1, 1]), [1], seed=0)]
    [[2, 5], [0, 1, 3, 4]]
    """
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(len(per_class) + 1)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) < sum(per_class):
            raise InputError(
                f"class {label} has {len(rows)} images but the parts need {sum(per_class)} of each "
                "class; ask for fewer"
            )
        for part, chosen in zip(parts, np.split(rows, np.cumsum(per_class)), strict=True):
            part.append(chosen)
    return [np.sort(np.concatenate(part)) for part in parts]
