"""Handwritten digits, installed with scikit-learn: for the demo and tests."""

import numpy as np

from orbithash.data.features import LabelledFeatures
from orbithash.data.splits import Split, stratified_parts

QUERIES_PER_CLASS = 40
TRAIN_PER_CLASS = 40
VALIDATION_PER_CLASS = 40


def read_digits(seed: int = 0) -> LabelledFeatures:
    """1,797 handwritten digits of 8 × 8 pixels, from scikit-learn (UCI, Alpaydin and Kaynak 1998).

    Of each digit, 40 images are queries and all others are the database. 40 images per digit of
    the database are for training and 40 more for validation. No method sees the remaining ones
    before evaluation, as in the paper's protocols, so that memorising does not help.
    """
    from sklearn.datasets import load_digits  # here: most programs open no digits

    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    query, train, validation, unseen = stratified_parts(
        labels, [QUERIES_PER_CLASS, TRAIN_PER_CLASS, VALIDATION_PER_CLASS], seed=seed
    )
    database = np.sort(np.concatenate([train, validation, unseen]))
    return LabelledFeatures(
        features=(bunch.data / 16.0).astype(np.float32),
        labels=labels,
        classes=tuple(str(name) for name in bunch.target_names),
        split=Split(train=train, query=query, database=database, validation=validation),
    )
