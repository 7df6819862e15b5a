"""Images in, codes out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int64, UInt8
from PIL import Image
from torch import nn

from orbithash.codes import binarize, pack
from orbithash.data import ImageSource
from orbithash.data.transforms import read_view
from orbithash.encoders.encoder import (
    Data,
    Encoded,
    Encoder,
    OnUnreadable,
    Progress,
    check_encodes,
    check_prefix,
    no_progress,
)
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_reading import read_through_network
from orbithash.encoders.runs.fingerprints import check_features_by
from orbithash.encoders.runs.record import Epoch, Training
from orbithash.encoders.runtime import Runtime, choose_runtime, run_by, to_onnx
from orbithash.errors import InputError, UnreadableImageError
from orbithash.metrics.scores import Scores
from orbithash.networks import (
    ClassCodeHead,
    FeatureHead,
    PhotoBackbone,
    load_photo_backbone,
    network_weights,
)

if TYPE_CHECKING:  # an encoder without a hasher must not load scikit-learn
    from orbithash.hashers import Hasher

BATCH = 32
HEAD_SIZES = ("n_bits", "hidden", "dropout", "n_classes", "known_classes")  # if the head has them


class ImageEncoder:
    """Encodes images by a backbone and an encoder of its features: a trained head or a hasher.

    Each image is read in the view that the backbone takes.
    """

    takes_images = True

    def __init__(
        self,
        backbone: nn.Module,
        head: "FeatureHead | ClassCodeHead | Hasher | FeatureEncoder",
    ) -> None:
        if not isinstance(backbone, PhotoBackbone):
            raise InputError(
                f"{type(backbone).__name__} does not say which view of a photograph it "
                "takes; give a backbone that does"
            )
        self.backbone = backbone
        self.head = head if isinstance(head, FeatureEncoder) else FeatureEncoder(head)
        if self.head.input_shape != (backbone.n_features,):
            raise InputError(
                f"the head takes features of {self.head.n_features} numbers, but the backbone "
                f"gives {backbone.n_features}; give the backbone that the head was trained on"
            )
        self.view = backbone.view
        self.n_bits = self.head.n_bits
        self.training: Training | None = None

    @property
    def n_features(self) -> int:
        """The length of the backbone's feature vectors."""
        return self.head.n_features

    @property
    def hidden(self) -> int | None:
        """The hidden units of the head; None where it has none to choose, as a hasher."""
        return self.head.hidden

    @property
    def head_sizes(self) -> dict[str, Any]:
        """The shape of the head, such as its bits and hidden units; empty for a hasher."""
        return self.head.head_sizes

    @property
    def nested(self) -> tuple[int, ...]:
        """The shorter lengths at which the first bits were trained as codes of their own."""
        return self.training.record.prefixes() if self.training else ()

    @property
    def history(self) -> tuple[Epoch, ...]:
        return self.training.history if self.training else ()

    def embed(self, images: Sequence[Any]) -> Float[np.ndarray, "n bits"]:
        """Return the embeddings in [0, 1] of images, given as `encode` takes them."""
        one_array = hasattr(images, "ndim") and images.ndim < 4
        if one_array or isinstance(images, str | Path | Image.Image):
            raise InputError(f"got one {type(images).__name__}; give a list of images")
        return self._embed_readable(list(images), None)[1]

    def _embed_readable(
        self, images: Sequence[Any], on_unreadable: OnUnreadable | None
    ) -> tuple[list[int], Float[np.ndarray, "readable bits"]]:
        """Return the positions of the images that can be read, and their embeddings."""
        readable: list[int] = []
        parts = [np.empty((0, self.n_bits), np.float32)]
        with self.running("torch") as run:
            for start in range(0, len(images), BATCH):
                views = []
                for position in range(start, min(start + BATCH, len(images))):
                    try:
                        views.append(read_view(images[position], **asdict(self.view)))
                        readable.append(position)
                    except UnreadableImageError as error:
                        if on_unreadable is None:
                            raise
                        on_unreadable(error)
                if views:
                    parts.append(self.head.embed(run(np.stack(views))))
        return readable, np.concatenate(parts)

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
        *,
        keep_features: bool = False,
    ) -> Iterator[Encoded]:
        """Embed each batch of rows of the images; files are read ahead by threads."""
        check_encodes(self, data)
        assert isinstance(data, ImageSource)
        total = sum(map(len, batches))
        before = 0
        # One runtime for all batches: exporting takes long, and runtimes differ in the last digits.
        with self.running(choose_runtime(self.backbone, n_images=total)) as run:
            for rows in batches:
                yield self.embed_rows(
                    data,
                    rows,
                    run=run,
                    progress=lambda done, _, before=before: progress(before + done, total),  # type: ignore[misc]
                    keep_features=keep_features,
                )
                before += len(rows)

    def embed_rows(
        self,
        images: ImageSource,
        rows: Int64[np.ndarray, " n"],
        *,
        run: Runtime | None = None,
        progress: Progress = no_progress,
        batch_size: int | None = None,
        keep_features: bool = False,
    ) -> Encoded:
        """Embed some rows of the images, by torch unless a runtime is given, 32 at a time."""
        if run is None:
            with self.running("torch") as torch_runtime:
                return self.embed_rows(
                    images,
                    rows,
                    run=torch_runtime,
                    progress=progress,
                    batch_size=batch_size,
                    keep_features=keep_features,
                )
        view = asdict(self.view)
        batch_size = batch_size or BATCH
        starts = range(0, len(rows), batch_size)
        sizes = [min(batch_size, len(rows) - start) for start in starts]
        parts = [np.empty((0, self.n_bits), np.float32)]
        features = [np.empty((0, self.n_features), np.float32)]
        readable: list[bool] = []
        reasons: list[str] = []
        for part in read_through_network(
            (int(row) for row in rows),
            partial(read_row, images=images, view=view),
            run,
            n_features=self.n_features,
            batch_sizes=sizes,
        ):
            if len(part.features):
                parts.append(self.head.embed(part.features))
                features += [part.features] if keep_features else []
            readable.extend(part.readable.tolist())
            reasons.extend(part.reasons)
            progress(len(readable), len(rows))
        mask = np.array(readable, dtype=bool)
        unreadable = [images.paths[row] for row in rows[~mask]]
        return Encoded(
            rows[mask],
            np.concatenate(parts),
            dict(zip(unreadable, reasons, strict=True)),
            np.concatenate(features) if keep_features else None,
        )

    def embed_queries(
        self, items: Sequence[Any], on_unreadable: OnUnreadable | None = None
    ) -> tuple[list[str], Float[np.ndarray, "n bits"]]:
        """Embed images, each named by its path."""
        readable, embeddings = self._embed_readable(items, on_unreadable)
        given = [items[position] for position in readable]
        names = [str(item) if isinstance(item, str | Path) else "image" for item in given]
        return names, embeddings

    def prefix(self, n_bits: int) -> "ImageEncoder":
        """Return an encoder of the first bits, with the same backbone; see `nested`."""
        check_prefix(self, n_bits)
        if n_bits == self.n_bits:
            return self
        encoder = ImageEncoder(self.backbone, self.head.sliced(n_bits))
        encoder.training = self.training and self.training.of_prefix(n_bits)
        return encoder

    def to(self, device: str) -> "ImageEncoder":
        """Move the backbone to a device, such as "cuda"; the head is small and stays on the CPU."""
        self.backbone.to(device)
        return self

    def model(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what rebuilds the encoder: a description for JSON, and arrays by name."""
        head, head_arrays = self.head.model()
        # A trained head is described as it was before hashers could encode images.
        sizes = self.head_sizes or head
        description = {
            "backbone": self.backbone.registry_name(),
            "arguments": self.backbone.arguments,
            **sizes,
        }
        parts = (("backbone", network_weights(self.backbone)), ("head", head_arrays))
        arrays = {f"{part}.{name}": array for part, named in parts for name, array in named.items()}
        return {"images": description}, arrays

    def to_onnx(self) -> tuple[bytes, dict[str, Any]]:
        """Return an ONNX model from `images` to `embeddings`, and its metadata."""
        network = nn.Sequential(self.backbone, self.head.module())
        model = to_onnx(network, side=self.view.crop, output="embeddings")
        return model, {"n_bits": self.n_bits, "view": asdict(self.view)}

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

    @contextmanager
    def running(self, runtime: str) -> Iterator[Runtime]:
        """Yield a function from pixels to features; the training mode is restored afterwards."""
        was_training = self.backbone.training
        try:
            yield run_by(runtime, self.backbone, side=self.view.crop)
        finally:
            self.backbone.train(was_training)


def join_backbone(
    encoder: Encoder, backbone: str | PhotoBackbone, weights: str | Path | None = None
) -> ImageEncoder:
    """Return an encoder of images from an encoder of features and the network that made them."""
    if not isinstance(encoder, FeatureEncoder):
        raise InputError("this run encodes images already; leave the backbone out")
    network = backbone
    if isinstance(network, str):
        network = load_photo_backbone(network, None if weights is None else Path(weights))
    check_features_by(encoder.training, network)
    joined = ImageEncoder(network.eval(), encoder)
    if encoder.training is not None:
        record = replace(
            encoder.training.record,
            backbone=network.registry_name(),
            tune="head",
            weights=None if weights is None else str(weights),
        )
        joined.training = replace(encoder.training, record=record)
    return joined


def read_row(
    row: int, images: ImageSource, view: dict[str, Any]
) -> UInt8[np.ndarray, "side side 3"]:
    return read_view(images.image(row), **view)
