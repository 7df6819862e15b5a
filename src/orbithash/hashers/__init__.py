"""Shallow methods: scikit-learn estimators from features to bits, and their registry `HASHERS`."""

from orbithash.hashers.base import Hasher
from orbithash.hashers.binary_reconstructive import BinaryReconstructiveEmbedding
from orbithash.hashers.discriminant_quantization import DiscriminantQuantization
from orbithash.hashers.iterative_quantization import IterativeQuantization
from orbithash.hashers.kernel_supervised import KernelSupervisedHashing
from orbithash.hashers.minimal_loss import MinimalLossHashing
from orbithash.hashers.predicted_class import PredictedClass
from orbithash.hashers.principal_components import PrincipalComponentSigns
from orbithash.hashers.random_hyperplanes import RandomHyperplanes
from orbithash.hashers.spectral import SpectralHashing
from orbithash.hashers.supervised_discrete import SupervisedDiscreteHashing

__all__ = [
    "HASHERS",
    "BinaryReconstructiveEmbedding",
    "DiscriminantQuantization",
    "Hasher",
    "IterativeQuantization",
    "KernelSupervisedHashing",
    "MinimalLossHashing",
    "PredictedClass",
    "PrincipalComponentSigns",
    "RandomHyperplanes",
    "SpectralHashing",
    "SupervisedDiscreteHashing",
]

HASHERS: dict[str, type[Hasher]] = {
    "lsh": RandomHyperplanes,
    "pca": PrincipalComponentSigns,
    "sh": SpectralHashing,
    "itq": IterativeQuantization,
    "bre": BinaryReconstructiveEmbedding,
    "mlh": MinimalLossHashing,
    "ksh": KernelSupervisedHashing,
    "sdh": SupervisedDiscreteHashing,
    "lda-itq": DiscriminantQuantization,
    "predicted-class": PredictedClass,
}
