"""Images in, codes out."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from PIL import Image

from orbithash.codes import binarize, pack
from orbithash.data.transforms import read_view, to_rgb, view_of
from orbithash.encoders.read_ahead import read_ahead
from orbithash.errors import InputError, UnreadableImageError
from orbithash.networks import HashingNetwork, PhotoBackbone

Pixels = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, eq=False)
class EncodedFiles:
    """Embeddings of the files that could be read, and the reason for every other."""

    embeddings: Float32[np.ndarray, "readable bits"]
    readable: Bool[np.ndarray, " files"]
    unreadable: dict[Path, str]

    def codes(self) -> UInt8[np.ndarray, "readable bytes"]:
        return pack(binarize(self.embeddings))


class ImageEncoder:
    """Encodes images by a backbone and its hash layer, each image as the backbone sees it."""

    def __init__(self, network: HashingNetwork) -> None:
        if not isinstance(network.backbone, PhotoBackbone):
            raise InputError(
                f"{type(network.backbone).__name__} does not say which view of a photograph it "
                "takes; give a backbone that does"
            )
        self.network = network
        self.view = network.backbone.view
        self.n_bits = network.hash_layer.out_features

    def embed(self, images: Sequence[Any]) -> Float32[np.ndarray, "n bits"]:
        """The embeddings in [0, 1] whose bits are the codes."""
        if isinstance(images, str | Path | Image.Image):
            raise InputError(f"got one {type(images).__name__}; give a list of images")
        views = (seen_of(image, asdict(self.view)) for image in images)
        parts = [self._embed(batch) for batch in batches(views, 32)]
        return np.concatenate(parts) if parts else np.empty((0, self.n_bits), np.float32)

    def encode(self, images: Sequence[Any]) -> UInt8[np.ndarray, "n bytes"]:
        """The packed codes of images: paths, PIL images, or uint8 arrays of (height, width, 3).

        An image that cannot be read raises `UnreadableImageError`; `embed_files` goes on.
        """
        return pack(binarize(self.embed(images)))

    def embed_files(
        self,
        files: Sequence[Path],
        *,
        batch_size: int = 32,
        progress: Callable[[int], None] = lambda done: None,
    ) -> EncodedFiles:
        """The embeddings of many files, read ahead by threads; what cannot be read is left out."""
        contents = read_ahead(
            files,
            partial(read_view, **asdict(self.view)),
            n_threads=min(8, os.cpu_count() or 1),
            n_ahead=4 * batch_size,
        )
        parts = [np.empty((0, self.n_bits), np.float32)]
        readable: list[bool] = []
        unreadable: dict[Path, str] = {}
        with closing(contents):
            for batch in batches(contents, batch_size):
                for item in batch:
                    readable.append(isinstance(item, np.ndarray))
                    if isinstance(item, UnreadableImageError):
                        unreadable[item.path] = item.reason
                parts.append(self._embed([item for item in batch if isinstance(item, np.ndarray)]))
                progress(len(readable))
        return EncodedFiles(np.concatenate(parts), np.array(readable, dtype=bool), unreadable)

    @torch.inference_mode()
    def _embed(self, pixels: list[Pixels]) -> Float32[np.ndarray, "n bits"]:
        if not pixels:
            return np.empty((0, self.n_bits), np.float32)
        device = next(self.network.parameters()).device
        was_training = self.network.training
        self.network.eval()
        try:
            # Channels already come last in memory, as convolutions on a processor like it best.
            batch = torch.from_numpy(np.stack(pixels)).to(device).permute(0, 3, 1, 2).float()
            return np.asarray(self.network(batch).cpu().numpy())
        finally:
            self.network.train(was_training)


def seen_of(image: Any, view: dict[str, Any]) -> Pixels:
    """What the network is shown of an image, however it is given."""
    if isinstance(image, str | Path):
        return read_view(Path(image), **view)
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise InputError(
                f"got an array of {image.dtype} and shape {image.shape}; "
                "give uint8 of shape (height, width, 3)"
            )
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise InputError(f"got a {type(image).__name__}; give a path, a PIL image or an array")
    try:
        return view_of(to_rgb(image), **view)
    except ValueError as error:
        raise InputError(f"got an image that cannot be encoded: {error}") from None


def batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch
