"""The encoder protocol: images or features in, codes out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64, UInt8

from orbithash.codes import binarize, check_n_bits, pack
from orbithash.data import ImageSource, LabelledFeatures, Vectors
from orbithash.encoders.runs.record import Training
from orbithash.errors import InputError, UnreadableImageError
from orbithash.metrics.scores import Scores

Data = ImageSource | LabelledFeatures | Vectors
Progress = Callable[[int, int], None]  # items done, and items in all
OnUnreadable = Callable[[UnreadableImageError], None]


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Embeddings of the rows of a source that could be read, and the reason for each other row."""

    rows: Int64[np.ndarray, " n"]
    embeddings: Float[np.ndarray, "n bits"]
    unreadable: dict[str, str]  # reason by path
    # That the embeddings were computed from: of the backbone, or given; None if not asked for.
    features: Float[np.ndarray, "n *shape"] | None = None

    @property
    def n_bits(self) -> int:
        return int(self.embeddings.shape[1])

    @property
    def codes(self) -> UInt8[np.ndarray, "n bytes"]:
        return pack(binarize(self.embeddings))

    def positions(self, rows: Int64[np.ndarray, " wanted"]) -> Int64[np.ndarray, " found"]:
        """Return where these rows are among the encoded ones; unreadable rows are left out."""
        order = np.argsort(self.rows)
        found = rows[np.isin(rows, self.rows)]
        return np.asarray(order[np.searchsorted(self.rows, found, sorter=order)])

    def prefix(self, n_bits: int) -> "Encoded":
        """Return the same rows with the first bits alone."""
        return replace(self, embeddings=self.embeddings[:, :n_bits])


def check_encodes(encoder: "Encoder", data: Data) -> None:
    """Raise unless the encoder takes this kind of data."""
    if encoder.takes_images and not isinstance(data, ImageSource):
        raise InputError("this run encodes images, not features; give the images themselves")
    if isinstance(data, ImageSource) and not encoder.takes_images:
        raise InputError(
            f"this run encodes features of {encoder.n_features} numbers, not images; extract them "
            "with `orbithash features`, by the network that it was trained on"
        )


def check_prefix(encoder: "Encoder", n_bits: int) -> None:
    """Raise unless the first bits of the encoder's codes were trained as codes of their own."""
    check_n_bits(n_bits)
    lengths = (*encoder.nested, encoder.n_bits)
    if n_bits in lengths:
        return
    if n_bits > encoder.n_bits:
        raise InputError(
            f"got {n_bits} bits, but the codes of this encoder have {encoder.n_bits}; give at most "
            f"as many: {', '.join(map(str, lengths))}"
        )
    raise InputError(
        f"the first {n_bits} bits of this encoder's codes were not trained as codes of their own, "
        f"and would be poor ones; give {' or '.join(map(str, lengths))}, or train with --nested "
        f"{n_bits}"
    )


@runtime_checkable
class Encoder(Protocol):
    """Encodes images, or feature vectors, as binary codes."""

    n_bits: int
    training: Training | None  # how it was trained, if that is known
    takes_images: bool  # else feature vectors

    @property
    def n_features(self) -> int:
        """The length of a feature vector; of an encoder of images, that of its backbone's."""

    @property
    def hidden(self) -> int | None:
        """The hidden units of the head; None for a hasher."""

    @property
    def nested(self) -> tuple[int, ...]:
        """The shorter lengths at which the first bits were trained as codes of their own."""

    @property
    def history(self) -> tuple[Any, ...]:
        """What each epoch did; empty for a hasher."""

    def embed(self, items: Any) -> Float[np.ndarray, "n bits"]:
        """Return embeddings in [0, 1]; a bit is set where the embedding is above 0.5."""

    def encode(self, items: Any) -> UInt8[np.ndarray, "n bytes"]:
        """Return packed codes."""

    def embed_batches(
        self,
        data: Data,
        batches: Sequence[Int64[np.ndarray, " _"]],
        progress: Progress = no_progress,
        *,
        keep_features: bool = False,
    ) -> Iterator[Encoded]:
        """Embed each batch of rows of a source, one after the other, and keep the features too."""

    def embed_queries(
        self, items: Sequence[Any], on_unreadable: OnUnreadable | None = None
    ) -> tuple[list[str], Float[np.ndarray, "n bits"]]:
        """Return a name and an embedding for each query as a user gives it.

        An image that cannot be read raises an error; with `on_unreadable`, that is called with the
        error instead, and the image is left out.
        """

    def prefix(self, n_bits: int) -> "Encoder":
        """Return an encoder of the first bits; their number is in `nested`, or `n_bits`."""

    def to(self, device: str) -> "Encoder":
        """Move the network to a device, such as "cuda"."""

    def model(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what rebuilds the encoder: a description for JSON, and arrays by name."""

    def to_onnx(self) -> tuple[bytes, dict[str, Any]]:
        """Return an ONNX model from the encoder's input to `embeddings`, and its metadata."""

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a run's folder, which `orbithash.load` reads; `force` replaces an earlier run."""

    def push_to_hub(
        self,
        repository: str,
        *,
        scores: Scores | None = None,
        private: bool = False,
        license: str | None = None,
    ) -> str:
        """Share the encoder on the Hugging Face Hub; return the address that `load` takes."""
