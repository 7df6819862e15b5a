"""Features in, codes out."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from orbithash.codes import binarize, pack
from orbithash.errors import InputError
from orbithash.hashers import Hasher
from orbithash.networks import FeatureHead, embed


class FeatureEncoder:
    """Encodes vectors by a trained head or a fitted hasher; who uses it cannot tell which."""

    def __init__(self, model: FeatureHead | Hasher) -> None:
        self.model = model
        self.n_bits = int(model.n_bits)
        self.n_features = int(
            model.n_features if isinstance(model, FeatureHead) else model.n_features_in_
        )

    def embed(self, features: Any) -> Float[np.ndarray, "n bits"]:
        """The embeddings in [0, 1] whose bits are the codes."""
        vectors = self._checked(features)
        if isinstance(self.model, FeatureHead):
            return embed(self.model, torch.from_numpy(vectors)).numpy()
        return self.model.project(vectors)

    def encode(self, features: Any) -> UInt8[np.ndarray, "n bytes"]:
        """The packed codes of float vectors (n, n_features)."""
        return pack(binarize(self.embed(features)))

    def _checked(self, features: Any) -> Float[np.ndarray, "n features"]:
        vectors = np.asarray(features)
        if vectors.ndim != 2 or vectors.shape[1] != self.n_features or vectors.dtype.kind != "f":
            raise InputError(
                f"got features of shape {vectors.shape} and type {vectors.dtype}; this encoder "
                f"takes floats of shape (n, {self.n_features}), from the network it was trained on"
            )
        if not np.isfinite(vectors).all():
            raise InputError("got features that are NaN or infinite; leave such rows out")
        # What training saw: a float64 vector must not get another code than its float32 copy.
        return np.ascontiguousarray(vectors, dtype=np.float32)
