"""A backbone's features of many images, and of further views of them, in one file to train on."""

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from orbithash.data import (
    ImageSource,
    LabelledFeatures,
    Split,
    Views,
    read_features,
    write_features,
)
from orbithash.data.augmentation import read_training_view
from orbithash.data.transforms import read_view
from orbithash.encoders.encoder import Progress, no_progress
from orbithash.encoders.encoding import unreadable_list, write_unreadable
from orbithash.encoders.extraction.feature_cache import FeatureCache
from orbithash.encoders.image_reading import NetworkOutputs, read_through_network
from orbithash.encoders.runs.fingerprints import changed_settings, feature_fingerprint
from orbithash.encoders.runtime import Runtime, choose_runtime, run_by
from orbithash.errors import InputError
from orbithash.networks import PhotoBackbone, View

PART_SIZE = 256  # images that a killed run may have to read again


@dataclass(frozen=True)
class ImageView:
    """One view of an image: number 0 is the one that is encoded, 1 its mirror image, then crops."""

    row: int
    number: int


@dataclass(frozen=True)
class Extraction:
    """How many images a call to `extract_features` processed."""

    n_images: int  # rows in the file
    n_computed: int  # images and views computed by this call, not found from an earlier one
    n_unreadable: int  # images that are left out
    seconds: float


def extract_features(
    images: ImageSource,
    backbone: PhotoBackbone,
    out: Path,
    *,
    n_views: int = 0,
    force: bool = False,
    batch_size: int = 32,
    runtime: str | None = None,
    progress: Progress = no_progress,
) -> Extraction:
    """Write the features of all images, with labels and split, to the file `out`.

    Finished parts are kept in the folder `out` + ".partial" until the file is whole, so that a
    stopped run resumes from there. A file that already holds these features is kept; any other is
    replaced only with `force`.

    Unreadable images are left out of features, labels and split, and listed in
    `unreadable_list(out)`. With `n_views` the file also has that many further views of each
    training image: its mirror image, then random crops. The whole file comes from one runtime,
    torch or onnxruntime; `choose_runtime` chooses it unless `runtime` is given.
    """
    started = time.perf_counter()
    if out.is_dir():
        raise InputError(f"{out} is a folder; give --out the name of a file")
    views = list_views(images, range(len(images)), n_views=n_views)
    runtime = runtime or choose_runtime(backbone, n_images=len(views))
    fingerprint = feature_fingerprint(images, backbone, runtime=runtime, n_views=n_views)
    if out.exists() and not force:
        n_images = len(finished_features(out, fingerprint))
        return Extraction(n_images, 0, len(images) - n_images, time.perf_counter() - started)

    cache = FeatureCache(out.with_name(out.name + ".partial"), fingerprint=fingerprint, force=force)
    n_computed = compute_missing(
        cache,
        views,
        images,
        backbone,
        runtime=runtime,
        batch_size=batch_size,
        progress=progress,
    )
    data, unreadable = cached_features(cache, views, images, fingerprint)
    write_unreadable(unreadable, unreadable_list(out))
    write_features(data, out)
    cache.remove()
    return Extraction(len(data), n_computed, len(unreadable), time.perf_counter() - started)


def training_features(
    images: ImageSource,
    backbone: PhotoBackbone,
    folder: Path,
    *,
    n_views: int,
    runtime: str | None = None,
    progress: Progress = no_progress,
) -> tuple[LabelledFeatures, dict[str, str]]:
    """Return the features that train and validate a head, and the reason for each unreadable image.

    They equal those that `extract_features` writes for the same images and runtime. Finished parts
    are kept in the folder, so that a stopped run resumes from there. Queries are not read.
    """
    rows = np.union1d(images.split.learned, images.split.validation)
    views = list_views(images, rows.tolist(), n_views=n_views)
    runtime = runtime or choose_runtime(backbone, n_images=len(views))
    fingerprint = feature_fingerprint(images, backbone, runtime=runtime, n_views=n_views)
    cache = FeatureCache(folder, fingerprint=fingerprint)
    compute_missing(cache, views, images, backbone, runtime=runtime, progress=progress)
    return cached_features(cache, views, images, fingerprint)


def finished_features(out: Path, fingerprint: str) -> LabelledFeatures:
    """Return the features in an existing file; raise if they have another fingerprint."""
    try:
        data = read_features(out)
        # Features of another runtime are the same except for their last digits.
        changed = changed_settings(data.made_with or "{}", fingerprint, ignored={"runtime"})
    except InputError as error:
        raise InputError(
            f"{out} exists and holds something else ({error}); add --force to replace it, "
            "or give --out another name"
        ) from None
    if changed:
        raise InputError(
            f"{out} exists and was made with other {changed}; add --force to replace it, "
            "or give --out another name"
        )
    return data


def compute_missing(
    cache: FeatureCache,
    views: list[ImageView],
    images: ImageSource,
    backbone: PhotoBackbone,
    *,
    runtime: str,
    batch_size: int = 32,
    progress: Progress,
) -> int:
    """Compute the parts that are not cached; return how many views gave features."""
    missing = [number for number in range(n_parts(views)) if number not in cache]
    views_of = {number: views[number * PART_SIZE : (number + 1) * PART_SIZE] for number in missing}
    done = len(views) - sum(len(part) for part in views_of.values())
    progress(done, len(views))
    if not missing:
        return 0
    run = run_by(runtime, backbone, side=backbone.view.crop)
    # Batches end where parts do, so that stopping a run cannot change the last digits.
    sizes = {number: batch_sizes(len(views_of[number]), batch_size) for number in missing}
    batches = read_through_network(
        (view for number in missing for view in views_of[number]),
        partial(read_image_view, images=images, view=backbone.view),
        lambda pixels: never_alone(run, pixels),
        n_features=backbone.n_features,
        batch_sizes=[size for number in missing for size in sizes[number]],
    )
    n_computed = 0
    with closing(batches):
        for number in missing:
            outputs = []
            for batch in islice(batches, len(sizes[number])):
                outputs.append(batch)
                done += len(batch.readable)
                progress(done, len(views))
            part = joined(outputs)
            if views_of[number][0].number:
                part = replace(part, features=compact(part.features))
            cache.write(number, part)
            n_computed += len(part.features)
    return n_computed


def joined(outputs: list[NetworkOutputs]) -> NetworkOutputs:
    return NetworkOutputs(
        features=np.concatenate([part.features for part in outputs]),
        readable=np.concatenate([part.readable for part in outputs]),
        reasons=tuple(reason for part in outputs for reason in part.reasons),
    )


def cached_features(
    cache: FeatureCache, views: list[ImageView], images: ImageSource, fingerprint: str
) -> tuple[LabelledFeatures, dict[str, str]]:
    """Return the cached features of all views, and the reason for each unreadable image."""
    sizes = batch_sizes(len(views), PART_SIZE)
    parts = [cache.read(number, n_views=size) for number, size in enumerate(sizes)]
    try:
        return labelled_features(images, views, parts, fingerprint)
    except InputError:
        # Nothing to resume from: once the files are repaired they must be read again.
        cache.remove()
        raise


def labelled_features(
    images: ImageSource, views: list[ImageView], outputs: list[NetworkOutputs], fingerprint: str
) -> tuple[LabelledFeatures, dict[str, str]]:
    """Return the features of the readable images with labels and split, and the other images."""
    rows = np.array([view.row for view in views], dtype=np.int64)
    n_first = sum(view.number == 0 for view in views)
    readable_views = np.concatenate([part.readable for part in outputs])
    reasons = [reason for part in outputs for reason in part.reasons]
    readable = readable_views[:n_first]
    present = rows[:n_first][readable]
    missing = rows[:n_first][~readable]
    if not len(present):
        raise InputError(
            f"none of the {n_first} images in {images} can be read; the first: "
            f"{images.paths[missing[0]]}: {reasons[0]}"
        )
    new_row = np.full(len(images), -1)
    new_row[present] = np.arange(len(present))
    names = ["train", "validation", "unlabelled"]
    if n_first == len(images):  # else only what trains was read
        names += ["query", "database"]
    parts = {name: new_row[getattr(images.split, name)] for name in names}
    split = Split(**{name: kept[kept >= 0] for name, kept in parts.items()})
    labels = images.labels[present]
    # An image that became unreadable between two views has no row for its views to belong to.
    view_of = new_row[rows[n_first:][readable_views[n_first:]]]
    first, others = joined_apart([part.features for part in outputs], len(present))
    kept = view_of >= 0
    further = Views(others if kept.all() else others[kept], view_of[kept])
    data = LabelledFeatures(
        features=first.astype(np.float32, copy=False),
        labels=labels.astype(np.int64) if labels.ndim == 1 else labels.astype(bool),
        split=split,
        paths=tuple(images.paths[row] for row in present),
        classes=images.classes,
        made_with=fingerprint,
        views=further if len(further.of) else None,
    )
    return data, dict(zip((images.paths[row] for row in missing), reasons, strict=False))


def joined_apart(
    parts: list[Float[np.ndarray, "_ d"]], n_first: int
) -> tuple[Float[np.ndarray, "{n_first} d"], Float[np.ndarray, "further d"]]:
    """Join the first rows, and then the others in half precision: together they would lose it."""
    starts = np.cumsum([0, *(len(part) for part in parts)])
    cuts = [max(0, n_first - start) for start in starts[:-1].tolist()]
    first = [part[:cut] for part, cut in zip(parts, cuts, strict=True) if cut]
    further = [part[cut:] for part, cut in zip(parts, cuts, strict=True) if cut < len(part)]
    none = np.empty((0, parts[0].shape[1]), np.float32)
    return np.concatenate(first), np.concatenate([compact(part) for part in further] or [none])


def compact(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return further views in half precision, which halves their memory and changes no result."""
    small = not len(features) or np.abs(features).max() < np.finfo(np.float16).max
    return features.astype(np.float16 if small else np.float32, copy=False)


def never_alone(run: Runtime, pixels: UInt8[np.ndarray, "n side side 3"]) -> Any:
    """Run the network on at least two images: torch rounds a batch of one differently."""
    return run(np.repeat(pixels, 2, axis=0))[:1] if len(pixels) == 1 else run(pixels)


def n_parts(views: list[ImageView]) -> int:
    return -(-len(views) // PART_SIZE)


def batch_sizes(n_images: int, batch_size: int) -> list[int]:
    """Return full batches, and the rest.

    >>> batch_sizes(10, 4)
    [4, 4, 2]
    """
    return [min(batch_size, n_images - start) for start in range(0, n_images, batch_size)]


def list_views(images: ImageSource, rows: Iterable[int], *, n_views: int) -> list[ImageView]:
    """List the encoded view of these rows, then `n_views` further views of those that train."""
    train = images.split.learned.tolist()
    further = [ImageView(row, number) for number in range(1, n_views + 1) for row in train]
    return [ImageView(row, 0) for row in rows] + further


def read_image_view(
    image_view: ImageView, images: ImageSource, view: View
) -> UInt8[np.ndarray, "side side 3"]:
    """Read the pixels of a view; its row and number determine a random crop.

    The mirror image comes first, because it is closer to the encoded view than crops are.
    """
    image = images.image(image_view.row)
    if image_view.number <= 1:
        pixels = read_view(image, **asdict(view))
        return pixels[:, ::-1] if image_view.number else pixels
    return read_training_view(
        image,
        crop=view.crop,
        rng=np.random.default_rng([image_view.row, image_view.number]),
        keep_shape=view.keep_shape,
        interpolation=view.interpolation,
    )
