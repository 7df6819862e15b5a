"""Datasets by name: benchmarks in their published layout, and one that is installed with us."""

from collections.abc import Callable
from pathlib import Path

from orbithash.data.benchmarks.cub200_2011 import read_cub200_2011
from orbithash.data.benchmarks.digits import read_digits
from orbithash.data.benchmarks.stanford_dogs import read_stanford_dogs
from orbithash.data.benchmarks.sun397 import read_sun397
from orbithash.data.benchmarks.voc2007 import read_voc2007
from orbithash.data.features import LabelledFeatures
from orbithash.data.images import ImageFiles

# Read from a folder in the published layout; users write `name:folder`.
BENCHMARKS: dict[str, Callable[[Path], ImageFiles]] = {
    "cub200_2011": read_cub200_2011,
    "stanford_dogs": read_stanford_dogs,
    "sun397": read_sun397,
    "voc2007": read_voc2007,
}

DATASETS: dict[str, Callable[..., ImageFiles | LabelledFeatures]] = {
    "digits": read_digits,
    **BENCHMARKS,
}
