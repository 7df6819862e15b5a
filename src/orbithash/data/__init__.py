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
    PartlyLabelledBatches,
    ShuffledBatches,
    batches_by_labels,
    partly_labelled_batches,
    shuffled_batches,
)
from orbithash.data.sources import (
    open_source,
    open_unlabelled,
    open_without_labels,
    with_unlabelled,
)
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
    "PartlyLabelledBatches",
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
    "partly_labelled_batches",
    "read_features",
    "read_vectors",
    "shuffled_batches",
    "training_rows",
    "with_unlabelled",
    "write_features",
    "write_image_table",
]
