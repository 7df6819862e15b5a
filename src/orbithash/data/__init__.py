"""Data: labelled images and features, their splits, and batches of them."""

from orbithash.data.benchmarks import BENCHMARKS, DATASETS
from orbithash.data.benchmarks.published_files import HOMES
from orbithash.data.features import (
    LabelledFeatures,
    Vectors,
    Views,
    read_features,
    read_vectors,
    write_features,
)
from orbithash.data.folder import all_images, class_folders
from orbithash.data.images import ImageDataset, ImageFiles, ImageSource
from orbithash.data.sampling import (
    ClassBalancedBatches,
    ShuffledBatches,
    batches_by_labels,
    shuffled_batches,
)
from orbithash.data.sources import open_source, open_unlabelled, open_without_labels
from orbithash.data.splits import Split, check_trainable, hold_out, training_rows
from orbithash.data.table import image_table, is_table, write_image_table

__all__ = [
    "BENCHMARKS",
    "DATASETS",
    "HOMES",
    "ClassBalancedBatches",
    "ImageDataset",
    "ImageFiles",
    "ImageSource",
    "LabelledFeatures",
    "ShuffledBatches",
    "Split",
    "Vectors",
    "Views",
    "all_images",
    "batches_by_labels",
    "check_trainable",
    "class_folders",
    "hold_out",
    "image_table",
    "is_table",
    "open_source",
    "open_unlabelled",
    "open_without_labels",
    "read_features",
    "read_vectors",
    "shuffled_batches",
    "training_rows",
    "write_features",
    "write_image_table",
]
