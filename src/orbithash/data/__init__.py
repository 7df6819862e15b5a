"""Images and their labels."""

from orbithash.data.base import LabelledImages, Split
from orbithash.data.bundled import digits
from orbithash.data.cub200_2011 import cub200_2011
from orbithash.data.features import LabelledFeatures, read_features, write_features
from orbithash.data.folder import class_folders
from orbithash.data.image_files import ImageFiles
from orbithash.data.sampling import ClassBalancedBatches, ShuffledBatches

__all__ = [
    "DATASETS",
    "ClassBalancedBatches",
    "ImageFiles",
    "LabelledFeatures",
    "LabelledImages",
    "ShuffledBatches",
    "Split",
    "class_folders",
    "read_features",
    "write_features",
]

DATASETS = {"digits": digits, "cub200_2011": cub200_2011}
