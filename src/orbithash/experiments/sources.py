"""What a table is made on: features with a name, read from a file or extracted from images."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orbithash.data import (
    BENCHMARKS,
    ImageFiles,
    LabelledFeatures,
    LabelledImages,
    open_source,
    read_features,
)
from orbithash.encoders.extract import extract_features
from orbithash.encoders.fingerprint import digest_of_arrays
from orbithash.errors import InputError
from orbithash.experiments.published import Dataset, published_dataset
from orbithash.networks import load_photo_backbone

Progress = Callable[[str, int, int], None]  # a source's name, its images done, and in all


@dataclass(frozen=True)
class Source:
    """Features with labels and split, under the name that tables and folders have for them."""

    name: str
    file: Path
    digest: str  # of features, labels and split: equal digests mean equal data
    sizes: dict[str, int]  # how many rows train, ask and answer
    images: Path | None = None  # where the images are that were described

    @property
    def dataset(self) -> Dataset | None:
        """What the paper calls it, if it has figures for it."""
        return published_dataset(self.name)

    @property
    def shown(self) -> str:
        return self.dataset.shown if self.dataset else self.name


@dataclass(frozen=True)
class Extractor:
    """Which network describes the images of a source."""

    backbone: str
    weights: Path | None
    n_views: int = 0  # of each training image, besides the one by which it is encoded


def prepare_sources(
    given: list[str],
    out: Path,
    *,
    frozen: bool,
    extractor: Extractor,
    progress: Progress = lambda name, done, total: None,
) -> list[Source]:
    """Open every source; those of images become features in `out`, once."""
    named = [split_name(text) for text in given]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two sources are called {name!r}; name them apart: --source NAME=…")
    return [
        prepare(name, place, out, frozen=frozen, extractor=extractor, progress=progress)
        for name, place in named
    ]


def prepare(
    name: str, place: str, out: Path, *, frozen: bool, extractor: Extractor, progress: Progress
) -> Source:
    opened = open_source(place)
    if isinstance(opened, LabelledFeatures):
        return as_source(name, Path(place), opened)
    if isinstance(opened, LabelledImages):
        raise InputError(f"{place} has no image files; give a folder, a .csv, an .npz or a dataset")
    if not frozen:
        raise InputError(
            f"{place} holds images, and training through the network is not there yet; "
            "add --frozen to train heads on its features"
        )
    file = features_of_images(name, opened, out, extractor, progress)
    return as_source(name, file, read_features(file), images=opened.root)


def features_of_images(
    name: str, images: ImageFiles, out: Path, extractor: Extractor, progress: Progress
) -> Path:
    """The file in `out` with the features of these images; computed only if not there."""
    backbone = load_photo_backbone(extractor.backbone, extractor.weights)
    file = out / "features" / f"{name}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    extract_features(
        images,
        backbone,
        file,
        n_views=extractor.n_views,
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
    split = data.split
    views = (data.views.features, data.views.of) if data.views else ()
    digest = digest_of_arrays(
        data.features, data.labels, split.train, split.query, split.database, *views
    )
    sizes = {part: len(getattr(split, part)) for part in ("train", "query", "database")}
    return Source(name, file, digest, sizes, images)
