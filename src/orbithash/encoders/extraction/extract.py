"""A backbone's features of many image files, as one file that can be fitted and trained on."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from orbithash.data import (
    ImageFiles,
    LabelledFeatures,
    Split,
    Views,
    read_features,
    write_features,
)
from orbithash.encoders.extraction.feature_cache import Shard, ShardFolder
from orbithash.encoders.extraction.views import Reading, list_readings, take
from orbithash.encoders.image_reading import describe_files
from orbithash.encoders.runs.fingerprints import changed_settings, fingerprint
from orbithash.encoders.runtime import choose_runtime, run_by
from orbithash.encoders.unreadable import unreadable_list, write_unreadable
from orbithash.errors import InputError
from orbithash.networks import PhotoBackbone

SHARD_SIZE = 256  # images that a killed run may have to read again


@dataclass(frozen=True)
class Extraction:
    """What a run did."""

    n_images: int  # rows in the file
    n_computed: int  # images and views in this run, and not found from an earlier one
    n_unreadable: int  # images that are left out
    seconds: float


def extract_features(
    images: ImageFiles,
    backbone: PhotoBackbone,
    out: Path,
    *,
    n_views: int = 0,
    force: bool = False,
    batch_size: int = 32,
    runtime: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Extraction:
    """Write the features of all images, with labels and split, to the file `out`.

    What is done is kept in the folder `out` + ".partial" until the file is whole: a run that was
    stopped, however it was, goes on from there. A file that already holds what is asked for is
    left as it is, and one that holds anything else is replaced only with `force`.

    Images that cannot be read are left out of features, labels and split, and are listed in
    `unreadable_list(out)`. With `n_views` the file also has so many further views of each training
    image: its mirror image, then random parts of it. `progress` is told how many images and
    views are done, and of how many. The network is run by torch or onnxruntime, one of them for
    the whole file; unless `runtime` says which, `choose_runtime` does.
    """
    started = time.perf_counter()
    if out.is_dir():
        raise InputError(f"{out} is a folder; give --out the name of a file")
    readings = list_readings(images, n_views=n_views)
    runtime = runtime or choose_runtime(backbone, n_images=len(readings))
    made_with = fingerprint(images, backbone, runtime=runtime, n_views=n_views)
    if out.exists() and not force:
        n_images = len(finished(out, made_with))
        return Extraction(n_images, 0, len(images) - n_images, time.perf_counter() - started)

    shards = ShardFolder(out.with_name(out.name + ".partial"), made_with=made_with, force=force)
    n_computed = fill(
        shards,
        readings,
        images,
        backbone,
        runtime=runtime,
        batch_size=batch_size,
        progress=progress,
    )
    everything = joined([shards.read(number) for number in range(n_shards(readings))])
    try:
        data = labelled(images, readings, everything, made_with)
    except InputError:
        # Nothing to go on with: once the files are mended they must be read again.
        shards.remove()
        raise
    unreadable = list_unreadable(images, everything)
    write_unreadable(unreadable, unreadable_list(out))
    write_features(data, out)
    shards.remove()
    return Extraction(len(data), n_computed, len(unreadable), time.perf_counter() - started)


def finished(out: Path, made_with: str) -> LabelledFeatures:
    """The features that are already there, if they are the ones asked for."""
    try:
        data = read_features(out)
        # Features of another runtime are the same but for their last digits.
        changed = changed_settings(data.made_with or "{}", made_with, besides={"runtime"})
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


def fill(
    shards: ShardFolder,
    readings: list[Reading],
    images: ImageFiles,
    backbone: PhotoBackbone,
    *,
    runtime: str,
    batch_size: int,
    progress: Callable[[int, int], None],
) -> int:
    """Compute the shards that are not there yet; return how many readings gave features."""
    missing = [number for number in range(n_shards(readings)) if number not in shards]
    wanted = {
        number: readings[number * SHARD_SIZE : (number + 1) * SHARD_SIZE] for number in missing
    }
    done = len(readings) - sum(len(part) for part in wanted.values())
    progress(done, len(readings))
    if not missing:
        return 0
    # Batches end where shards do, so that stopping a run cannot change the last digits.
    sizes = {number: batch_sizes(len(wanted[number]), batch_size) for number in missing}
    parts = describe_files(
        (reading for number in missing for reading in wanted[number]),
        partial(take, images=images, view=backbone.view),
        run_by(runtime, backbone, side=backbone.view.crop),
        n_features=backbone.n_features,
        batch_sizes=[size for number in missing for size in sizes[number]],
    )
    n_computed = 0
    with closing(parts):
        for number in missing:
            batches = []
            for batch in islice(parts, len(sizes[number])):
                batches.append(batch)
                done += len(batch.readable)
                progress(done, len(readings))
            shard = joined(batches)
            shards.write(number, shard)
            n_computed += len(shard.features)
    return n_computed


def joined(shards: list[Shard]) -> Shard:
    return Shard(
        features=np.concatenate([shard.features for shard in shards]),
        readable=np.concatenate([shard.readable for shard in shards]),
        reasons=tuple(reason for shard in shards for reason in shard.reasons),
    )


def labelled(
    images: ImageFiles, readings: list[Reading], shard: Shard, made_with: str
) -> LabelledFeatures:
    """The features with the labels and the split of the images that could be read."""
    readable = shard.readable[: len(images)]
    if not readable.any():
        raise InputError(
            f"none of the {len(images)} images in {images.root} can be read; the first: "
            f"{images.paths[0]}: {shard.reasons[0]}"
        )
    new_row = np.cumsum(readable) - 1
    parts = (images.split.train, images.split.query, images.split.database)
    labels = images.labels[readable]
    n_readable = np.count_nonzero(readable)
    rows = np.array([reading.row for reading in readings], dtype=np.int64)
    view_of = rows[len(images) :][shard.readable[len(images) :]]
    # An image that could be read only some of the time has no row that its views could be of.
    kept = readable[view_of]
    views = Views(shard.features[n_readable:][kept], new_row[view_of[kept]])
    return LabelledFeatures(
        features=shard.features[:n_readable],
        labels=labels.astype(np.int64) if labels.ndim == 1 else labels.astype(bool),
        split=Split(*(new_row[part[readable[part]]] for part in parts)),
        paths=tuple(images.paths[row] for row in np.flatnonzero(readable)),
        classes=images.classes,
        made_with=made_with,
        views=views if len(views.of) else None,
    )


def list_unreadable(images: ImageFiles, shard: Shard) -> dict[str, str]:
    rows = np.flatnonzero(~shard.readable[: len(images)])
    return {images.paths[row]: why for row, why in zip(rows, shard.reasons, strict=False)}


def n_shards(readings: list[Reading]) -> int:
    return -(-len(readings) // SHARD_SIZE)


def batch_sizes(n_images: int, batch_size: int) -> list[int]:
    """As many full batches as there are, and the rest.

    >>> batch_sizes(10, 4)
    [4, 4, 2]
    """
    return [min(batch_size, n_images - start) for start in range(0, n_images, batch_size)]
