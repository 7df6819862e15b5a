"""Datasets by name: benchmarks in the layout their authors publish, and one that comes along."""

from collections.abc import Callable
from pathlib import Path

from orbithash.data.benchmarks.cub200_2011 import cub200_2011
from orbithash.data.benchmarks.digits import digits
from orbithash.data.benchmarks.stanford_dogs import stanford_dogs
from orbithash.data.benchmarks.sun397 import sun397
from orbithash.data.benchmarks.voc2007 import voc2007
from orbithash.data.features import LabelledFeatures
from orbithash.data.images import ImageFiles

# Read from the folder that its authors publish, written `name:folder`.
BENCHMARKS: dict[str, Callable[[Path], ImageFiles]] = {
    "cub200_2011": cub200_2011,
    "stanford_dogs": stanford_dogs,
    "sun397": sun397,
    "voc2007": voc2007,
}

DATASETS: dict[str, Callable[..., ImageFiles | LabelledFeatures]] = {"digits": digits, **BENCHMARKS}
