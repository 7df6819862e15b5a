"""Images in, codes out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Shaped, UInt8
from PIL import Image

from orbithash.codes import binarize, pack
from orbithash.data.transforms import read_view, to_rgb, upright, view_of
from orbithash.encoders.image_reading import describe_files
from orbithash.encoders.runtime import Describe, run_by
from orbithash.errors import InputError
from orbithash.networks import HashingNetwork, PhotoBackbone, View

BATCH = 32


@dataclass(frozen=True, eq=False)
class EncodedFiles:
    """Embeddings of the files that could be read, and the reason for every other."""

    embeddings: Float32[np.ndarray, "readable bits"]
    readable: Bool[np.ndarray, " files"]
    unreadable: dict[Path, str]

    def codes(self) -> UInt8[np.ndarray, "readable bytes"]:
        return pack(binarize(self.embeddings))


class ImageEncoder:
    """Encodes images by a backbone and its head, each image as the backbone sees it."""

    def __init__(self, network: HashingNetwork) -> None:
        if not isinstance(network.backbone, PhotoBackbone):
            raise InputError(
                f"{type(network.backbone).__name__} does not say which view of a photograph it "
                "takes; give a backbone that does"
            )
        self.network = network
        self.view = network.backbone.view
        self.n_bits = network.head.n_bits

    def embed(self, images: Sequence[Any]) -> Float32[np.ndarray, "n bits"]:
        """The embeddings in [0, 1] whose bits are the codes."""
        if isinstance(images, str | Path | Image.Image):
            raise InputError(f"got one {type(images).__name__}; give a list of images")
        parts = [np.empty((0, self.n_bits), np.float32)]
        with self.described_by("torch") as describe:
            for start in range(0, len(images), BATCH):
                batch = [shown_of(image, self.view) for image in images[start : start + BATCH]]
                parts.append(describe(np.stack(batch)))
        return np.concatenate(parts)

    def encode(self, images: Sequence[Any]) -> UInt8[np.ndarray, "n bytes"]:
        """The packed codes of images: paths, PIL images, or uint8 arrays of (height, width, 3).

        An image that cannot be read raises `UnreadableImageError`; `embed_files` goes on.
        """
        return pack(binarize(self.embed(images)))

    def embed_files(
        self,
        files: Sequence[Path],
        *,
        describe: Describe | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> EncodedFiles:
        """The embeddings of many files, read ahead by threads; what cannot be read is left out.

        The network is run by torch, unless `described_by` has given what runs it. `progress` is
        told how many files are done.
        """
        sizes = [min(BATCH, len(files) - start) for start in range(0, len(files), BATCH)]
        parts = [np.empty((0, self.n_bits), np.float32)]
        readable: list[bool] = []
        reasons: list[str] = []
        running = nullcontext(describe) if describe else self.described_by("torch")
        with running as outputs:
            read = partial(read_view, **asdict(self.view))
            shards = describe_files(files, read, outputs, n_features=self.n_bits, batch_sizes=sizes)
            for shard in shards:
                parts.append(shard.features)
                readable.extend(shard.readable.tolist())
                reasons.extend(shard.reasons)
                progress(len(readable))
        broken = [file for file, well in zip(files, readable, strict=True) if not well]
        return EncodedFiles(
            np.concatenate(parts),
            np.array(readable, dtype=bool),
            dict(zip(broken, reasons, strict=True)),
        )

    @contextmanager
    def described_by(self, runtime: str) -> Iterator[Describe]:
        """What runs the network, which goes on training afterwards if it did before."""
        was_training = self.network.training
        try:
            yield run_by(runtime, self.network, side=self.view.crop)
        finally:
            self.network.train(was_training)


def shown_of(image: Any, view: View) -> UInt8[np.ndarray, "side side 3"]:
    """What the network is shown of an image, however it is given."""
    if isinstance(image, str | Path):
        return read_view(Path(image), **asdict(view))
    if isinstance(image, np.ndarray):
        image = image_of(image)
    if not isinstance(image, Image.Image):
        raise InputError(f"got a {type(image).__name__}; give a path, a PIL image or an array")
    try:
        return view_of(to_rgb(upright(image)), **asdict(view))
    except (ValueError, OSError) as error:  # an image may be read from its file only now
        raise InputError(f"got an image that cannot be encoded: {error}") from None


def image_of(array: Shaped[np.ndarray, "..."]) -> Image.Image:
    """Grey, RGB or RGBA, of which grey may come with or without its one channel."""
    channels = 1 if array.ndim == 2 else array.shape[-1]
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise InputError(
            f"got an array of {array.dtype} and shape {array.shape}; "
            "give uint8 of shape (height, width, 3)"
        )
    return Image.fromarray(array.reshape(array.shape[:2]) if channels == 1 else array)
