"""Images and their labels."""

from orbithash.data.base import LabelledImages, Split
from orbithash.data.bundled import digits
from orbithash.data.sampling import ClassBalancedBatches, ShuffledBatches

__all__ = ["DATASETS", "ClassBalancedBatches", "LabelledImages", "ShuffledBatches", "Split"]

DATASETS = {"digits": digits}
