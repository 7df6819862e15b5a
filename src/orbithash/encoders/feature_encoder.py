"""Features in, codes out."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import nn

from orbithash.codes import binarize, pack
from orbithash.data import LabelledFeatures, Vectors, read_vectors
from orbithash.encoders.encoder import (
    Data,
    Encoded,
    OnUnreadable,
    Progress,
    check_encodes,
    check_prefix,
    no_progress,
)
from orbithash.encoders.runs.record import Epoch, Training
from orbithash.encoders.runtime import exported
from orbithash.errors import InputError
from orbithash.metrics.scores import Scores
from orbithash.networks import ClassCodeHead, FeatureHead, HashingNetwork, embed, network_weights

if TYPE_CHECKING:  # an encoder without a hasher must not load scikit-learn
    from orbithash.hashers import Hasher


class FeatureEncoder:
    """Encodes vectors by a trained network or a fitted hasher.

    The network is a head on feature vectors, or a backbone with its head on small images that are
    held in memory as arrays.
    """

    takes_images = False

    def __init__(
        self,
        network: "FeatureHead | ClassCodeHead | HashingNetwork | Hasher",
        input_shape: tuple[int, ...] = (),
    ) -> None:
        self.network = network
        self.training: Training | None = None
        if isinstance(network, HashingNetwork):
            self.n_bits, self.input_shape = int(network.head.n_bits), input_shape
        elif isinstance(network, FeatureHead | ClassCodeHead):
            self.n_bits, self.input_shape = int(network.n_bits), (int(network.n_features),)
        else:
            self.n_bits, self.input_shape = int(network.n_bits), (int(network.n_features_in_),)

    @property
    def n_features(self) -> int:
        return int(np.prod(self.input_shape))

    @property
    def hidden(self) -> int | None:
        """The hidden units of the head; None where it has none to choose, as a hasher."""
        return self.head_sizes.get("hidden")

    @property
    def head_sizes(self) -> dict[str, Any]:
        """The shape of the head, such as its bits and hidden units; empty for a hasher."""
        head = self.network.head if isinstance(self.network, HashingNetwork) else self.network
        return dict(head.sizes) if isinstance(head, FeatureHead | ClassCodeHead) else {}

    @property
    def nested(self) -> tuple[int, ...]:
        """The shorter lengths at which the first bits were trained as codes of their own."""
        return self.training.record.prefixes() if self.training else ()

    @property
    def history(self) -> tuple[Epoch, ...]:
        return self.training.history if self.training else ()

    def embed(self, features: Any) -> Float[np.ndarray, "n bits"]:
        """Return the embeddings in [0, 1] of float vectors (n, n_features)."""
        vectors = self._checked(features)
        if not isinstance(self.network, nn.Module):
            return self.network.project(vectors)
        device = next(self.network.parameters()).device
        return embed(self.network, torch.from_numpy(vectors).to(device)).cpu().numpy()

    def encode(self, features: Any) -> UInt8[np.ndarray, "n bytes"]:
        """Return the packed codes of float vectors (n, n_features)."""
        return pack(binarize(self.embed(features)))

    def embed_batches(
        self,
        data: Data,
        batches: Sequence[Int64[np.ndarray, " _"]],
        progress: Progress = no_progress,
        *,
        keep_features: bool = False,
    ) -> Iterator[Encoded]:
        """Embed each batch of rows of the features."""
        check_encodes(self, data)
        assert isinstance(data, LabelledFeatures | Vectors)
        done, total = 0, sum(map(len, batches))
        for rows in batches:
            features = data.features[rows]
            yield Encoded(rows, self.embed(features), {}, features if keep_features else None)
            done += len(rows)
            progress(done, total)

    def embed_queries(
        self, items: Sequence[Any], on_unreadable: OnUnreadable | None = None
    ) -> tuple[list[str], Float[np.ndarray, "n bits"]]:
        """Embed vectors, and the rows of features files; no images are read."""
        names: list[str] = []
        parts = [np.empty((0, self.n_bits), np.float32)]
        for item in items:
            if not isinstance(item, str | Path):
                vector = np.atleast_2d(np.asarray(item))
                parts.append(self.embed(vector))
                names += ["vector"] * len(vector)
                continue
            if Path(item).suffix.lower() != ".npz":
                raise InputError(
                    f"this index holds codes of features, not of images; instead of {item} give an "
                    ".npz that `orbithash features` made, or search with --like ID"
                )
            vectors = read_vectors(Path(item))
            parts.append(self.embed(vectors.features))
            names += vectors.paths or [f"{item} row {row}" for row in range(len(vectors))]
        return names, np.concatenate(parts)

    def prefix(self, n_bits: int) -> "FeatureEncoder":
        """Return an encoder of the first bits; their number is in `nested`, or `n_bits`."""
        check_prefix(self, n_bits)
        if n_bits == self.n_bits:
            return self
        encoder = self.sliced(n_bits)
        encoder.training = self.training and self.training.of_prefix(n_bits)
        return encoder

    def sliced(self, n_bits: int) -> "FeatureEncoder":
        """Return an encoder by a network with the first outputs alone."""
        assert isinstance(self.network, FeatureHead | ClassCodeHead | HashingNetwork)
        return FeatureEncoder(self.network.prefix(n_bits), self.input_shape)

    def to(self, device: str) -> "FeatureEncoder":
        """Return the encoder; only "cpu" is possible."""
        if device != "cpu":
            raise InputError(f"features are encoded on cpu; {device} is for images")
        return self

    def model(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what rebuilds the encoder: a description for JSON, and arrays by name."""
        if isinstance(self.network, FeatureHead | ClassCodeHead):
            head = {"n_features": self.network.n_features, **self.network.sizes}
            return {"head": head}, network_weights(self.network)
        if isinstance(self.network, HashingNetwork):
            description = {**self.network.description(), "input_shape": list(self.input_shape)}
            return {"arrays": description}, network_weights(self.network)
        from orbithash.encoders.runs.estimators import take_apart

        arrays: dict[str, np.ndarray] = {}
        return {"hasher": take_apart(self.network, "", arrays)}, arrays

    def to_onnx(self) -> tuple[bytes, dict[str, Any]]:
        """Return an ONNX model from `features` to `embeddings`, and its metadata."""
        example = torch.zeros(2, *self.input_shape)
        model = exported(self.module(), example, input="features", output="embeddings")
        return model, {"n_bits": self.n_bits, "n_features": self.n_features}

    def module(self) -> nn.Module:
        """Return a torch module from features to embeddings."""
        if isinstance(self.network, nn.Module):
            return self.network
        from orbithash.encoders.hasher_network import as_network

        return as_network(self.network)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a run's folder, which `orbithash.load` reads; `force` replaces an earlier run."""
        from orbithash.encoders.runs.run_folder import save_run  # which imports the encoders

        save_run(self, folder, force=force)

    def push_to_hub(
        self,
        repository: str,
        *,
        scores: Scores | None = None,
        private: bool = False,
        license: str | None = None,
    ) -> str:
        """Share the encoder on the Hugging Face Hub; return the address that `load` takes.

        The repository `OWNER/NAME` is created, or updated, with the run's files and a model card.
        The card shows `scores`, as `orbithash.evaluate` returns them.
        """
        from orbithash.encoders.runs.hub import push_to_hub  # which imports the encoders

        return push_to_hub(self, repository, scores=scores, private=private, license=license)

    def _checked(self, features: Any) -> Float[np.ndarray, "n *shape"]:
        vectors = np.asarray(features)
        if vectors.dtype.kind in "iub":
            vectors = vectors.astype(np.float32)
        if (
            not isinstance(self.network, nn.Module) and vectors.ndim == 4
        ):  # small images, as in its fit
            vectors = vectors.reshape(len(vectors), -1)
        if vectors.shape[1:] != self.input_shape or vectors.dtype.kind != "f":
            shape = ", ".join(map(str, self.input_shape))
            raise InputError(
                f"got features of shape {vectors.shape} and type {vectors.dtype}; this encoder "
                f"takes floats of shape (n, {shape}), from the network it was trained on"
            )
        if not np.isfinite(vectors).all():
            raise InputError("got features that are NaN or infinite; leave such rows out")
        # As in training: a float64 vector must get the same code as its float32 copy.
        return np.require(vectors, dtype=np.float32, requirements=("C", "W"))
