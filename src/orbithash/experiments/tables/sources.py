"""What a table is made on: features, from a file or extracted from images, or the images."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orbithash.data import ImageFiles, LabelledFeatures, LabelledImages, read_features
from orbithash.data.augmentation import CROP_SETTINGS
from orbithash.data.benchmarks import BENCHMARKS
from orbithash.data.sources import open_source
from orbithash.encoders.extraction.extract import extract_features
from orbithash.encoders.runs.fingerprints import (
    digest_of_features,
    digest_of_images,
    digest_of_weights,
    fingerprint,
)
from orbithash.errors import InputError
from orbithash.experiments.tables.spec import Dataset, published_dataset
from orbithash.networks import load_photo_backbone
from orbithash.training import seeded

Progress = Callable[[str, int, int], None]  # a source's name, its images done, and in all


@dataclass(frozen=True)
class Network:
    """Which network sees the images of a source, and the weights it begins with."""

    backbone: str
    weights: Path | None
    n_views: int = 0  # described of each training image, besides the one by which it is encoded


@dataclass(frozen=True)
class FineTuning:
    """Images on which a network is trained whole."""

    place: str  # as `open_source` reads it
    network: Network
    digest: str  # of images, labels, split and the weights at the start


@dataclass(frozen=True)
class Source:
    """Images with labels and split, under the name that tables and folders have for them."""

    name: str
    file: Path | None  # of their features, unless nothing is trained on these
    digest: str  # of features, labels and split: equal digests mean equal data
    sizes: dict[str, int]  # how many rows train, ask and answer
    images: Path | None = None  # where the images are that were described
    fine_tuning: FineTuning | None = None  # what losses train on; None: on the features

    @property
    def dataset(self) -> Dataset | None:
        """What the paper calls it, if it has figures for it."""
        return published_dataset(self.name)

    @property
    def shown(self) -> str:
        return self.dataset.shown if self.dataset else self.name


def prepare_sources(
    given: list[str],
    out: Path,
    *,
    network: Network,
    frozen: bool,
    hashers: bool = True,
    progress: Progress = lambda name, done, total: None,
) -> list[Source]:
    """Open every source; images become features in `out`, once, where these are needed.

    Frozen, everything is trained on features; if not, losses train the whole network on images,
    and only `hashers` are fitted to features.
    """
    return [
        prepare(name, place, out, network, frozen=frozen, hashers=hashers, progress=progress)
        for name, place in named_apart(given)
    ]


def named_apart(given: Sequence[str]) -> list[tuple[str, str]]:
    """Name and place of every source; no two of one name."""
    named = [split_name(text) for text in given]
    for name, count in Counter(name for name, _ in named).items():
        if count > 1:
            raise InputError(f"two sources are called {name!r}; name them apart: NAME=SOURCE")
    return named


def prepare(
    name: str,
    place: str,
    out: Path,
    network: Network,
    *,
    frozen: bool,
    hashers: bool,
    progress: Progress,
) -> Source:
    opened = open_source(place)
    if isinstance(opened, LabelledFeatures):
        return as_source(name, Path(place), opened)
    if isinstance(opened, LabelledImages):
        raise InputError(f"{place} has no image files; give a folder, a .csv, an .npz or a dataset")
    if frozen:
        file = features_of_images(name, opened, out, network, progress)
        return as_source(name, file, read_features(file), images=opened.root)
    fine_tuning = FineTuning(place, network, digest_for_fine_tuning(opened, network))
    if not hashers:
        return Source(name, None, "", sizes_of(opened), opened.root, fine_tuning)
    # Hashers are fitted to one view of every image.
    file = features_of_images(name, opened, out, replace(network, n_views=0), progress)
    described = as_source(name, file, read_features(file), images=opened.root)
    return replace(described, fine_tuning=fine_tuning)


def digest_for_fine_tuning(images: ImageFiles, network: Network) -> str:
    with seeded(0):  # what begins from scratch
        start = load_photo_backbone(network.backbone, network.weights, to_train=True)
    text = (
        f"{digest_of_images(images)} {network.backbone} {digest_of_weights(start)} {CROP_SETTINGS}"
    )
    return hashlib.sha256(text.encode()).hexdigest()


def features_of_images(
    name: str, images: ImageFiles, out: Path, network: Network, progress: Progress
) -> Path:
    """The file in `out` with the features of these images; computed only if not there."""
    backbone = load_photo_backbone(network.backbone, network.weights)
    # By what it depends on: another network or number of views has a file of its own.
    made_with = fingerprint(images, backbone, runtime="", n_views=network.n_views)
    digest = hashlib.sha256(made_with.encode()).hexdigest()[:8]
    file = out / "features" / f"{name}-{digest}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    extract_features(
        images,
        backbone,
        file,
        n_views=network.n_views,
        progress=lambda done, total: progress(name, done, total),
    )
    return file


def split_name(text: str) -> tuple[str, str]:
    """A source's short name and its place: given as NAME=PLACE, or taken from the place.

    >>> split_name("birds=features/cub.npz"), split_name("features/voc2007.npz")
    (('birds', 'features/cub.npz'), ('voc2007', 'features/voc2007.npz'))
    >>> split_name("cub200_2011:data/birds")
    ('cub200_2011', 'cub200_2011:data/birds')
    """
    name, equals, place = text.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name) and not Path(text).exists():
        return name, place
    benchmark, colon, _ = text.partition(":")
    if colon and benchmark in BENCHMARKS:
        return benchmark, text
    return re.sub(r"[^\w.-]+", "_", Path(text).stem) or "source", text


def as_source(
    name: str, file: Path, data: LabelledFeatures, *, images: Path | None = None
) -> Source:
    return Source(name, file, digest_of_features(data), sizes_of(data), images)


def sizes_of(data: LabelledFeatures | ImageFiles) -> dict[str, int]:
    return {part: len(getattr(data.split, part)) for part in ("train", "query", "database")}
