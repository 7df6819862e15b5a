"""Images in, codes out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from PIL import Image

from orbithash.codes import binarize, pack
from orbithash.data import ImageSource
from orbithash.data.transforms import read_view
from orbithash.encoders.encoder import Data, Encoded, Progress, check_encodes, no_progress
from orbithash.encoders.image_reading import read_through_network
from orbithash.encoders.runs.record import Epoch, Training
from orbithash.encoders.runtime import Runtime, choose_runtime, run_by, to_onnx
from orbithash.errors import InputError
from orbithash.networks import HashingNetwork, PhotoBackbone, network_weights

BATCH = 32


class ImageEncoder:
    """Encodes images by a backbone and its head, each image in the view that the backbone takes."""

    takes_images = True

    def __init__(self, network: HashingNetwork) -> None:
        if not isinstance(network.backbone, PhotoBackbone):
            raise InputError(
                f"{type(network.backbone).__name__} does not say which view of a photograph it "
                "takes; give a backbone that does"
            )
        self.network = network
        self.view = network.backbone.view
        self.n_bits = network.head.n_bits
        self.training: Training | None = None

    @property
    def n_features(self) -> int:
        """The length of the backbone's feature vectors."""
        return self.network.head.n_features

    @property
    def hidden(self) -> int | None:
        """The hidden units of the head."""
        return self.network.head.hidden

    @property
    def history(self) -> tuple[Epoch, ...]:
        return self.training.history if self.training else ()

    def embed(self, images: Sequence[Any]) -> Float32[np.ndarray, "n bits"]:
        """Return the embeddings in [0, 1] of images, given as `encode` takes them."""
        one_array = hasattr(images, "ndim") and images.ndim < 4
        if one_array or isinstance(images, str | Path | Image.Image):
            raise InputError(f"got one {type(images).__name__}; give a list of images")
        images = list(images)
        parts = [np.empty((0, self.n_bits), np.float32)]
        with self._running("torch") as run:
            for start in range(0, len(images), BATCH):
                views = [read_view(image, **asdict(self.view)) for image in images[start:][:BATCH]]
                parts.append(run(np.stack(views)))
        return np.concatenate(parts)

    def encode(self, images: Sequence[Any]) -> UInt8[np.ndarray, "n bytes"]:
        """Return the packed codes of images: paths, PIL images, or uint8 (height, width, 3).

        An image that cannot be read raises `UnreadableImageError`; `embed_batches` leaves it out.
        """
        return pack(binarize(self.embed(images)))

    def embed_batches(
        self,
        data: Data,
        batches: Sequence[Int64[np.ndarray, " _"]],
        progress: Progress = no_progress,
    ) -> Iterator[Encoded]:
        """Embed each batch of rows of the images; files are read ahead by threads."""
        check_encodes(self, data)
        assert isinstance(data, ImageSource)
        total = sum(map(len, batches))
        before = 0
        # One runtime for all batches: exporting takes long, and runtimes differ in the last digits.
        with self._running(choose_runtime(self.network, n_images=total)) as run:
            for rows in batches:
                yield self.embed_rows(
                    data,
                    rows,
                    run=run,
                    progress=lambda done, _, before=before: progress(before + done, total),  # type: ignore[misc]
                )
                before += len(rows)

    def embed_rows(
        self,
        images: ImageSource,
        rows: Int64[np.ndarray, " n"],
        *,
        run: Runtime | None = None,
        progress: Progress = no_progress,
    ) -> Encoded:
        """Embed some rows of the images, by torch unless a runtime is given."""
        if run is None:
            with self._running("torch") as torch_runtime:
                return self.embed_rows(images, rows, run=torch_runtime, progress=progress)
        view = asdict(self.view)
        sizes = [min(BATCH, len(rows) - start) for start in range(0, len(rows), BATCH)]
        parts = [np.empty((0, self.n_bits), np.float32)]
        readable: list[bool] = []
        reasons: list[str] = []
        for part in read_through_network(
            (int(row) for row in rows),
            partial(read_row, images=images, view=view),
            run,
            n_features=self.n_bits,
            batch_sizes=sizes,
        ):
            parts.append(part.features)
            readable.extend(part.readable.tolist())
            reasons.extend(part.reasons)
            progress(len(readable), len(rows))
        mask = np.array(readable, dtype=bool)
        unreadable = [images.paths[row] for row in rows[~mask]]
        return Encoded(
            rows[mask], np.concatenate(parts), dict(zip(unreadable, reasons, strict=True))
        )

    def embed_queries(
        self, items: Sequence[Any]
    ) -> tuple[list[str], Float32[np.ndarray, "n bits"]]:
        """Embed images, each named by its path."""
        names = [str(item) if isinstance(item, str | Path) else "image" for item in items]
        return names, self.embed(items)

    def to(self, device: str) -> "ImageEncoder":
        """Move the network to a device, such as "cuda"."""
        self.network.to(device)
        return self

    def model(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what rebuilds the encoder: a description for JSON, and arrays by name."""
        return {"images": self.network.description()}, network_weights(self.network)

    def to_onnx(self) -> tuple[bytes, dict[str, Any]]:
        """Return an ONNX model from `images` to `embeddings`, and its metadata."""
        model = to_onnx(self.network, side=self.view.crop, output="embeddings")
        return model, {"n_bits": self.n_bits, "view": asdict(self.view)}

    def save(self, folder: str | Path) -> None:
        """Write a run's folder, which `orbithash.load` reads."""
        from orbithash.encoders.runs.run_folder import save_run  # which imports the encoders

        save_run(self, folder)

    @contextmanager
    def _running(self, runtime: str) -> Iterator[Runtime]:
        """Yield a function that runs the network, and restore its training mode afterwards."""
        was_training = self.network.training
        try:
            yield run_by(runtime, self.network, side=self.view.crop)
        finally:
            self.network.train(was_training)


def read_row(
    row: int, images: ImageSource, view: dict[str, Any]
) -> UInt8[np.ndarray, "side side 3"]:
    return read_view(images.image(row), **view)
