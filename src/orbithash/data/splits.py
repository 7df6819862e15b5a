"""Splits: which images are for training, queries, the database or validation."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from orbithash.errors import InputError
from orbithash.relevance import group_by_labels, related

QUERY_SHARE = 0.2  # of the images, in the default split
MIN_TRAIN_PER_CLASS = 2  # a triplet needs an anchor and a positive


def no_rows() -> Int64[np.ndarray, " n"]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the training images, the queries, the database and the validation images.

    `train`, `query` and `database` may overlap, as they do in published benchmarks. `validation`
    is for choosing settings; it never overlaps `train` or `query`. `unlabelled` images train, too:
    their labels are not used.
    """

    train: Int64[np.ndarray, " train"]
    query: Int64[np.ndarray, " query"] = field(default_factory=no_rows)
    database: Int64[np.ndarray, " database"] = field(default_factory=no_rows)
    validation: Int64[np.ndarray, " validation"] = field(default_factory=no_rows)
    unlabelled: Int64[np.ndarray, " unlabelled"] = field(default_factory=no_rows)

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise InputError("the split has no train images; give at least one row number")
        if (len(self.query) == 0) != (len(self.database) == 0):
            empty = "database" if len(self.query) else "query"
            raise InputError(
                f"the split has no {empty} images; give both queries and a database, or neither"
            )
        for name in ("train", "query", "database", "validation", "unlabelled"):
            rows = getattr(self, name)
            if len(np.unique(rows)) < len(rows):
                raise InputError(f"the split names some {name} images twice; name each row once")
        for name in ("train", "query"):
            shared = np.intersect1d(self.validation, getattr(self, name)).size
            if shared:
                raise InputError(
                    f"{shared} validation images are {name} images too; "
                    "choose settings on images outside of the training set and the queries"
                )

    @property
    def learned(self) -> Int64[np.ndarray, " learned"]:
        """All images that train, with labels or without."""
        return np.concatenate([self.train, self.unlabelled])

    @property
    def has_queries(self) -> bool:
        """Whether there are queries, and a database to search with them."""
        return len(self.query) > 0

    def check(self, n_images: int) -> None:
        """Raise unless every row number is one of `n_images` images."""
        for name in ("train", "query", "database", "validation", "unlabelled"):
            rows = getattr(self, name)
            if len(rows) and (rows.min() < 0 or rows.max() >= n_images):
                raise InputError(
                    f"the split's {name} rows go from {rows.min()} to {rows.max()}, but there are "
                    f"{n_images} images; number them from 0 to {n_images - 1}"
                )


def default_split(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    paths: Sequence[str],
    *,
    seed: int = 0,
) -> Split:
    """Make a default split: about 20 % queries, all other images for training and the database.

    The path of an image and the seed are hashed to a number in [0, 1). In each class

    - images with a number below 0.2 are queries;
    - if there are none, the image with the lowest number is a query;
    - at least two images stay in training: surplus queries with the highest numbers go back, and a
      class of one or two images has no query.

    Adding or removing images therefore does not move the others between training and queries,
    except by the last two rules. Multi-label images are treated as one class.

    Here class 0 has six images, two of them with a number below 0.2, and class 1 has two:

    >>> default_split(np.array([0, 0, 0, 0, 0, 0, 1, 1]), list("abcdefgh")).query
    array([0, 3])
    """
    numbers = hash_paths(paths, seed=seed)
    is_query = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(labels):
        n_below = int((numbers[rows] < QUERY_SHARE).sum())
        n_queries = n_held_out(n_below, n_images=len(rows))
        lowest_first = rows[np.argsort(numbers[rows], kind="stable")]
        is_query[lowest_first[:n_queries]] = True
    if not is_query.any():
        raise InputError(
            f"no class of the {len(labels)} images has at least three, so no query can be chosen; "
            "give more images per class, or a table with a split"
        )
    train = np.flatnonzero(~is_query)
    return Split(train=train, query=np.flatnonzero(is_query), database=train)


def split_to_encode(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    paths: Sequence[str],
    among: Int64[np.ndarray, " rows"] | None = None,
    *,
    seed: int = 0,
) -> Split:
    """Return the queries and the database of `default_split`, or none; every image trains.

    `among` are the rows that may be queries or in the database.
    """
    rows = np.arange(len(labels))
    among = rows if among is None else among
    try:
        split = default_split(labels[among], [paths[row] for row in among.tolist()], seed=seed)
    except InputError:  # too few images of every class for a query
        return Split(train=rows)
    return Split(train=rows, query=among[split.query], database=among[split.database])


def hold_out(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    share: float,
    *,
    seed: int,
) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " held_out"]]:
    """Return positions in `labels`: those left for training and those held out, both sorted.

    The same share of every class is held out at random: at least one image, unless that leaves
    fewer than two for training. Multi-label images are drawn without stratification.

    >>> hold_out(np.array([0, 0, 0, 1, 1]), 0.2, seed=0)
    (array([0, 1, 3, 4]), array([2]))
    """
    if share == 0:
        return np.arange(len(labels)), no_rows()
    rng = np.random.default_rng(seed)
    is_held_out = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(labels):
        n_drawn = n_held_out(round(share * len(rows)), n_images=len(rows))
        is_held_out[rng.permutation(rows)[:n_drawn]] = True
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def training_rows(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    split: Split,
    share: float,
    *,
    seed: int,
) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " held_out"]]:
    """Return the rows that train, and those that are held out to choose the epoch.

    Those held out are the validation rows of the split, if it has any, and otherwise a share of its
    training rows.
    """
    if len(split.validation):
        return split.train, split.validation
    kept, held = hold_out(labels[split.train], share, seed=seed)
    return split.train[kept], split.train[held]


def stratified_parts(
    labels: Int[np.ndarray, " n"], per_class: list[int], *, seed: int
) -> list[Int64[np.ndarray, " part"]]:
    """Draw disjoint parts at random, part i with `per_class[i]` images of every class.

    The last part of the result holds all remaining images. Each part is sorted.

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
                "class; request fewer"
            )
        for part, drawn in zip(parts, np.split(rows, np.cumsum(per_class)), strict=True):
            part.append(drawn)
    return [np.sort(np.concatenate(part)) for part in parts]


def check_trainable(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    names: Sequence[str] | None = None,
) -> None:
    """Raise unless the images can form triplets: related and unrelated ones.

    With one label per image, there must be at least two classes with at least two images each. With
    several labels, at least one pair of images must share a label, and at least one must not.
    `names` are the classes' names, for the error message.
    """
    if labels.ndim == 1:
        classes, sizes = np.unique(labels, return_counts=True)

        def name(label: int) -> str:
            return f"class {label}" if names is None else repr(names[label])

        if len(classes) < 2:
            raise InputError(
                f"all {len(labels)} training images are of {name(int(classes[0]))}; "
                "training on labels needs at least two classes"
            )
        if sizes.min() < 2:
            single = classes[sizes < 2]
            raise InputError(
                f"{len(single)} of {len(classes)} classes have one training image, the first is "
                f"{name(int(single[0]))}; a class needs at least two: add images, or leave these "
                "rows out of train"
            )
        return
    if labels.sum(axis=0).max(initial=0) < 2:
        raise InputError("no two training images share a label; training needs some that do")
    distinct_labels = group_by_labels(labels.astype(np.int64)).labels
    # Row by row: the first row is usually unrelated to some other, and all() stops there.
    if all(related(row[None], distinct_labels).all() for row in distinct_labels):
        raise InputError("all training images share a label; training needs some that do not")


def rows_by_class(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
) -> list[Int64[np.ndarray, " rows"]]:
    """Return the row numbers of each class, sorted; multi-hot labels count as one class.

    >>> rows_by_class(np.array([7, 3, 7]))
    [array([1]), array([0, 2])]
    """
    if labels.ndim == 2:
        return [np.arange(len(labels))]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def n_held_out(requested: int, *, n_images: int) -> int:
    """Return how many images of a class to take out of training.

    At least one, but `MIN_TRAIN_PER_CLASS` images always stay in training.

    >>> [n_held_out(0, n_images=n) for n in (1, 2, 3)]
    [0, 0, 1]
    """
    available = max(0, n_images - MIN_TRAIN_PER_CLASS)
    return min(max(1, requested), available)


def hash_paths(paths: Sequence[str], *, seed: int) -> Float[np.ndarray, " n"]:
    """Return a pseudo-random number in [0, 1) for each path, the same on every machine."""
    digests = (hashlib.sha256(f"{seed}\n{path}".encode()).digest() for path in paths)
    return np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests])
