"""Sources of a table: features from a file, features extracted from images, or the images."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from orbithash.data import ImageFiles, ImageSource, LabelledFeatures, read_features
from orbithash.data.augmentation import CROP_SETTINGS
from orbithash.data.benchmarks import BENCHMARKS
from orbithash.data.classes import class_names, present_classes
from orbithash.data.codes_file import LabelledCodes
from orbithash.data.sources import holds_features, open_source
from orbithash.encoders.extraction.extract import extract_features
from orbithash.encoders.runs.fingerprints import (
    feature_fingerprint,
    features_digest,
    images_digest,
    weights_digest,
)
from orbithash.errors import InputError
from orbithash.evaluation import nearest_items
from orbithash.experiments.tables.spec import PublishedDataset, published_dataset
from orbithash.networks import load_photo_backbone
from orbithash.training import seeded

SourceData = LabelledFeatures | ImageSource
SourceProgress = Callable[[str, int, int], None]  # source name, images done, images in total
HALVES = ("fixed", "random")  # ways to choose the half of the classes that is held out
RANDOM_HALVES = (2026, 17)  # seed of the random halves, before the seed of the run
MIN_CLASSES = 4  # for two halves in which classes can be told apart


@dataclass(frozen=True)
class NetworkSpec:
    """The network that encodes a source's images, and its initial weights."""

    backbone: str
    weights: Path | None
    n_views: int = 0  # augmented views extracted per training image, besides the plain one


@dataclass(frozen=True)
class FineTuning:
    """Images on which the whole network is trained."""

    location: str  # an argument of `open_source`
    network: NetworkSpec
    digest: str  # of images, labels, split and initial weights


@dataclass(frozen=True)
class TableSource:
    """Images with labels and a split, under the name used in tables and folders."""

    name: str
    file: Path | None  # with the features; None if nothing is trained on features
    digest: str  # of features, labels and split: equal digests mean equal data
    sizes: dict[str, int]  # rows by part: train, query, database
    images: Path | None = None  # folder of the images that the features were extracted from
    fine_tuning: FineTuning | None = None  # if set, losses train on images, not on features
    classes: tuple[str, ...] = ()  # names of the classes that have images, in their order
    halves: str | None = None  # one of HALVES, if runs hold out half of the classes

    @property
    def dataset(self) -> PublishedDataset | None:
        """The paper's dataset of this name, if any."""
        return published_dataset(self.name)

    @property
    def display_name(self) -> str:
        if self.halves is None:
            return self.dataset.display_name if self.dataset else self.name
        whole = replace(self, name=self.name.removesuffix(f"-{self.halves}-halves"), halves=None)
        return f"{whole.display_name}, {self.halves} halves"

    def with_halves(self) -> "list[TableSource]":
        """Return the source once for each way to hold out half of its classes."""
        if len(self.classes) < MIN_CLASSES:
            raise InputError(
                f"{self.name} has {len(self.classes)} classes; to hold out half of them, give a "
                f"source of at least {MIN_CLASSES}"
            )
        return [replace(self, name=f"{self.name}-{way}-halves", halves=way) for way in HALVES]

    def held_out(self, seed: int) -> tuple[str, ...]:
        """Return the classes that a run of this seed holds out.

        Fixed halves: those of the second half, for every seed. Random halves: drawn from a
        generator of their own, so that training draws what it would draw without.
        """
        if self.halves is None:
            return ()
        n = len(self.classes)
        if self.halves == "fixed":
            return self.classes[n - n // 2 :]
        drawn = np.random.default_rng([*RANDOM_HALVES, seed]).permutation(n)[: n // 2]
        return tuple(self.classes[number] for number in sorted(drawn.tolist()))


def prepare_sources(
    arguments: Sequence[str],
    out: Path,
    *,
    network: NetworkSpec,
    frozen: bool,
    hashers: bool = True,
    progress: SourceProgress = lambda name, done, total: None,
) -> list[TableSource]:
    """Open every source, and extract features of images into `out` where they are needed.

    With `frozen`, all methods are trained on features. Without it, losses train the whole network
    on images, and features are extracted only if there are `hashers` to fit.
    """
    return [
        prepare_source(
            name, location, out, network, frozen=frozen, hashers=hashers, progress=progress
        )
        for name, location in parse_sources(arguments)
    ]


def parse_sources(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and location of every source; raise if two have the same name."""
    sources = [parse_source(argument) for argument in arguments]
    for name, count in Counter(name for name, _ in sources).items():
        if count > 1:
            raise InputError(f"two sources are called {name!r}; give other names: NAME=SOURCE")
    return sources


def features_source(
    name: str, file: Path, data: LabelledFeatures, *, images: Path | None = None
) -> TableSource:
    return TableSource(
        name, file, features_digest(data), split_sizes(data), images, classes=names_of_classes(data)
    )


def open_source_data(source: TableSource, *, fine_tuned: bool) -> SourceData:
    """Open the images of a source, or its features."""
    if fine_tuned:
        assert source.fine_tuning is not None
        images = open_source(source.fine_tuning.location)
        assert isinstance(images, ImageFiles)
        return images
    assert source.file is not None
    return read_features_once(source.file)


def label_text(data: SourceData | LabelledCodes, row: int) -> str:
    """Return the class names of an image, or its label numbers if classes have no names."""
    labels = data.labels[row]
    numbers = np.flatnonzero(labels) if data.labels.ndim == 2 else [labels]
    return ", ".join(data.classes[n] if data.classes else str(n) for n in numbers)


read_features_once = lru_cache(maxsize=4)(read_features)  # many runs share the same features


@lru_cache(maxsize=4)  # takes seconds, and is the same for all runs
def nearest_once(file: Path) -> Int64[np.ndarray, "queries k"]:
    """Return the database items nearest to each query by the features of a file."""
    data = read_features_once(file)
    everything = np.arange(len(data))
    if not data.split.has_queries:
        return nearest_items(data.features, data, everything, everything)
    return nearest_items(data.features, data, data.split.query, data.split.database)


def parse_source(argument: str) -> tuple[str, str]:
    """Return short name and location: from NAME=LOCATION, or with a name made of the location.

    >>> parse_source("birds=features/cub.npz"), parse_source("features/voc2007.npz")
    (('birds', 'features/cub.npz'), ('voc2007', 'features/voc2007.npz'))
    >>> parse_source("cub200_2011:data/birds")
    ('cub200_2011', 'cub200_2011:data/birds')
    """
    name, equals, location = argument.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name) and not Path(argument).exists():
        return name, location
    benchmark, colon, _ = argument.partition(":")
    if colon and benchmark in BENCHMARKS:
        return benchmark, argument
    return re.sub(r"[^\w.-]+", "_", Path(argument).stem) or "source", argument


def prepare_source(
    name: str,
    location: str,
    out: Path,
    network: NetworkSpec,
    *,
    frozen: bool,
    hashers: bool,
    progress: SourceProgress,
) -> TableSource:
    opened = open_source(location)
    if isinstance(opened, LabelledFeatures) and holds_features(location):
        return features_source(name, Path(location), opened)
    if not isinstance(opened, ImageFiles):
        raise InputError(
            f"{location} has no image files; give a folder, a .csv, an .npz or a dataset"
        )
    if frozen:
        file = extract_once(name, opened, out, network, progress)
        return features_source(name, file, read_features(file), images=opened.root)
    fine_tuning = FineTuning(location, network, fine_tuning_digest(opened, network))
    if not hashers:
        return TableSource(
            name,
            None,
            "",
            split_sizes(opened),
            opened.root,
            fine_tuning,
            classes=names_of_classes(opened),
        )
    # Hashers are fitted to one view of every image.
    file = extract_once(name, opened, out, replace(network, n_views=0), progress)
    source = features_source(name, file, read_features(file), images=opened.root)
    return replace(source, fine_tuning=fine_tuning)


def fine_tuning_digest(images: ImageFiles, network: NetworkSpec) -> str:
    with seeded(0):  # parts without pretrained weights are initialised at random
        backbone = load_photo_backbone(network.backbone, network.weights, to_train=True)
    text = f"{images_digest(images)} {network.backbone} {weights_digest(backbone)} {CROP_SETTINGS}"
    return hashlib.sha256(text.encode()).hexdigest()


def extract_once(
    name: str, images: ImageFiles, out: Path, network: NetworkSpec, progress: SourceProgress
) -> Path:
    """Return the file in `out` with the features of these images; extract them if missing."""
    backbone = load_photo_backbone(network.backbone, network.weights)
    # Named by its inputs: another network or number of views has another file.
    inputs = feature_fingerprint(images, backbone, runtime="", n_views=network.n_views)
    digest = hashlib.sha256(inputs.encode()).hexdigest()[:8]
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


def names_of_classes(data: SourceData) -> tuple[str, ...]:
    return tuple(class_names(data, present_classes(data.labels).tolist()).values())


def split_sizes(data: SourceData) -> dict[str, int]:
    return {part: len(getattr(data.split, part)) for part in ("train", "query", "database")}
