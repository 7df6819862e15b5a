"""Splits: which images train, are queries, are searched, or are held out for validation."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from orbithash.errors import InputError
from orbithash.relevance import group_by_labels, related


def no_rows() -> Int64[np.ndarray, " n"]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the images that train, that are searched for, and that are searched.

    `train`, `query` and `database` may overlap, as they do in published benchmarks. `validation`
    is what settings are chosen on; it never overlaps `train` or `query`.
    """

    train: Int64[np.ndarray, " train"]
    query: Int64[np.ndarray, " query"] = field(default_factory=no_rows)
    database: Int64[np.ndarray, " database"] = field(default_factory=no_rows)
    validation: Int64[np.ndarray, " validation"] = field(default_factory=no_rows)

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise InputError("the split has no train images; give at least one row number")
        if (len(self.query) == 0) != (len(self.database) == 0):
            empty = "database" if len(self.query) else "query"
            raise InputError(
                f"the split has no {empty} images; give at least one row number, or neither "
                "queries nor a database where nothing is scored"
            )
        for name in ("train", "query", "database", "validation"):
            rows = getattr(self, name)
            if len(np.unique(rows)) < len(rows):
                raise InputError(f"the split names some {name} images twice; name each row once")
        for name in ("train", "query"):
            shared = np.intersect1d(self.validation, getattr(self, name)).size
            if shared:
                raise InputError(
                    f"{shared} validation images are {name} images too; "
                    "settings must be chosen on images that neither train nor are queries"
                )

    @property
    def is_scored(self) -> bool:
        """Whether there are queries, and a database to search."""
        return len(self.query) > 0

    def check(self, n_images: int) -> None:
        """Raise unless every row number is one of `n_images` images."""
        for name in ("train", "query", "database", "validation"):
            rows = getattr(self, name)
            if len(rows) and (rows.min() < 0 or rows.max() >= n_images):
                raise InputError(
                    f"the split's {name} rows go from {rows.min()} to {rows.max()}, but there are "
                    f"{n_images} images; number them from 0 to {n_images - 1}"
                )


def rows_by_class(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
) -> list[Int64[np.ndarray, " rows"]]:
    """The row numbers of each class, in order.

    Images of several labels belong to no one class: they are all in one.

    >>> rows_by_class(np.array([7, 3, 7]))
    [array([1]), array([0, 2])]
    """
    if labels.ndim == 2:
        return [np.arange(len(labels))]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


QUERY_SHARE = 0.2
LEFT_TO_TRAIN = 2  # of every class: an anchor and a positive


def default_split(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    paths: Sequence[str],
    *,
    seed: int = 0,
) -> Split:
    """About a fifth of the images are queries; all others train and are the database.

    The seed and an image's own path decide whether it is a query, so that images which are added
    or removed later leave the others where they are: else a run would be scored on what it was
    trained on. Only where that would leave a class of three or more without any query, or with
    fewer than two images to train, is the image taken that comes nearest. A class of one or two
    images gives no query. Images of several labels count as one class.
    """
    places = places_of(paths, seed=seed)
    is_query = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(labels):
        nearest_first = rows[np.argsort(places[rows], kind="stable")]
        wanted = max(1, int((places[rows] < QUERY_SHARE).sum()))
        is_query[nearest_first[: max(0, min(wanted, len(rows) - LEFT_TO_TRAIN))]] = True
    if not is_query.any():
        raise InputError(
            f"no class of the {len(labels)} images has three, so none can be searched for; "
            "give more images per class, or a table with a split"
        )
    rest = np.flatnonzero(~is_query)
    return Split(train=rest, query=np.flatnonzero(is_query), database=rest)


def places_of(paths: Sequence[str], *, seed: int) -> Float[np.ndarray, " n"]:
    """A number from 0 to 1 for every path, as if by chance, and the same on every machine."""
    digests = (hashlib.sha256(f"{seed}\n{path}".encode()).digest() for path in paths)
    return np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests])


def hold_out(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    share: float,
    *,
    seed: int,
) -> tuple[Int64[np.ndarray, " rest"], Int64[np.ndarray, " held_out"]]:
    """Positions that train, and positions that are held out, each in order.

    Of every class the same share is held out, at least one image if two are left to train. Images
    of several labels belong to no one class: of them the share is drawn from all.

    >>> hold_out(np.array([0, 0, 0, 1, 1]), 0.2, seed=0)
    (array([0, 1, 3, 4]), array([2]))
    """
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(labels) if share else []:
        wanted = max(1, round(share * len(rows)))
        chosen = rng.permutation(rows)[: max(0, min(wanted, len(rows) - LEFT_TO_TRAIN))]
        held_out[chosen] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


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
