"""A fitted hasher as a torch module with the same outputs, for ONNX."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.hashers import (
    HASHERS,
    BinaryReconstructiveEmbedding,
    DiscriminantQuantization,
    Hasher,
    IterativeQuantization,
    KernelSupervisedHashing,
    MinimalLossHashing,
    PredictedClass,
    PrincipalComponentSigns,
    RandomHyperplanes,
    SpectralHashing,
    SupervisedDiscreteHashing,
)
from orbithash.hashers.kernel_supervised import AnchorKernel


def as_network(hasher: Hasher) -> nn.Module:
    """Return a module from features to embeddings that computes what `hasher.project` does."""
    fitted: Any = hasher
    if isinstance(hasher, KernelSupervisedHashing):
        return Projection(hasher, fitted.weights_, offset=fitted.mean_, kernel=fitted.kernel_)
    if isinstance(hasher, SupervisedDiscreteHashing):
        return Projection(hasher, fitted.projection_, kernel=fitted.kernel_)
    if isinstance(hasher, SpectralHashing):
        pca = fitted.pca_
        waves = pca.components_.T[:, fitted.components_] * fitted.frequencies_
        shift = fitted.low_[fitted.components_] * fitted.frequencies_
        return Projection(hasher, waves, offset=pca.mean_, shift=shift, waves=True)
    if isinstance(hasher, PrincipalComponentSigns):
        return Projection(hasher, fitted.pca_.components_.T, offset=fitted.pca_.mean_)
    if isinstance(hasher, IterativeQuantization):
        rotated = fitted.pca_.components_.T @ fitted.rotation_
        return Projection(hasher, rotated, offset=fitted.pca_.mean_)
    if isinstance(hasher, DiscriminantQuantization):
        return Projection(hasher, fitted.projection_, offset=fitted.mean_)
    if isinstance(hasher, RandomHyperplanes):
        return Projection(hasher, fitted.hyperplanes_, offset=fitted.origin_)
    if isinstance(hasher, MinimalLossHashing | BinaryReconstructiveEmbedding):
        return Projection(hasher, fitted.hyperplanes_, offset=fitted.mean_)
    if isinstance(hasher, PredictedClass):
        scores = Projection(hasher, fitted.weights_, shift=-fitted.offset_)
        return CodeWords(scores, fitted.code_words_)
    raise InputError(
        f"a {type(hasher).__name__} cannot be exported; use one of {', '.join(HASHERS)}"
    )


class Projection(nn.Module):
    """Unit length, an optional kernel, a linear map, then a sigmoid or a cosine wave.

    In double precision, as the kernels of the hashers are.
    """

    weight: Tensor
    offset: Tensor
    shift: Tensor
    anchors: Tensor

    def __init__(
        self,
        hasher: Hasher,
        weight: Float[np.ndarray, "d bits"],
        *,
        offset: Any = 0.0,
        shift: Any = 0.0,
        kernel: AnchorKernel | None = None,
        waves: bool = False,
    ) -> None:
        super().__init__()
        self.normalize, self.waves = hasher.normalize, waves
        self.squared_width = None if kernel is None else kernel.squared_width
        arrays = {"weight": weight, "offset": offset, "shift": shift}
        if kernel is not None:
            arrays["anchors"] = kernel.anchors
        for name, array in arrays.items():
            self.register_buffer(name, torch.as_tensor(np.array(array, dtype=np.float64)))

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n bits"]:
        projections = self.projections(features)
        embeddings = (1 + projections.cos()) / 2 if self.waves else projections.sigmoid()
        return embeddings.clamp(0, 1).float()

    def projections(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n bits"]:
        rows = features.double()
        if self.normalize:
            length = rows.square().sum(dim=1, keepdim=True).sqrt()
            rows = rows / torch.where(length > 0, length, torch.ones_like(length))
        if self.squared_width is not None:
            distances = (
                rows.square().sum(dim=1, keepdim=True)
                - 2 * rows @ self.anchors.T
                + self.anchors.square().sum(dim=1)
            )
            rows = torch.exp(distances.clamp(min=0) / (-2 * self.squared_width))
        return (rows - self.offset) @ self.weight - self.shift


class CodeWords(nn.Module):
    """The code word of the class with the highest score."""

    code_words: Tensor

    def __init__(self, scores: Projection, code_words: Bool[np.ndarray, "classes bits"]) -> None:
        super().__init__()
        self.scores = scores
        self.register_buffer("code_words", torch.as_tensor(code_words, dtype=torch.float32))

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n bits"]:
        return self.code_words[self.scores.projections(features).argmax(dim=1)]
