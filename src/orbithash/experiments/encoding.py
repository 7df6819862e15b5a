"""Codes of a dataset's images by any method: a network trained with a loss, or a fitted hasher."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numba
import numpy as np
import torch
from jaxtyping import UInt8
from threadpoolctl import threadpool_limits

from orbithash.codes import binarize, pack
from orbithash.data import ClassBalancedBatches, LabelledImages
from orbithash.hashers import HASHERS
from orbithash.losses import LOSSES
from orbithash.networks import BACKBONES, HashingNetwork, embed
from orbithash.training import Epoch, TensorBatches, TrainingSettings, only_look, seeded, train


@dataclass(frozen=True)
class DeepSettings:
    """How a network is trained; one value for all deep methods but what validation chooses."""

    margin: float  # in bits
    learning_rate: float
    epochs: int
    images_per_class: int  # of every class in each batch
    backbone: str = "small-cnn"


def deep_codes(
    dataset: LabelledImages,
    method: str,
    n_bits: int,
    settings: DeepSettings,
    *,
    seed: int,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> UInt8[np.ndarray, "n bytes"]:
    """Train a network with the loss on the training images and encode all images.

    The seed decides the network's start and the batches, never the method: two losses with the
    same seed begin at the same weights and see the same images in the same order.
    """
    labels = dataset.labels[dataset.split.train]
    batches = ClassBalancedBatches(
        labels, len(np.unique(labels)), settings.images_per_class, seed=seed
    )
    images = torch.from_numpy(dataset.images)
    with reproducible(seed):
        network = HashingNetwork(BACKBONES[settings.backbone](), n_bits)
        train(
            network,
            LOSSES[method](margin=settings.margin),
            TensorBatches(
                only_look(images[torch.from_numpy(dataset.split.train)]),
                torch.from_numpy(labels),
                batches,
            ),
            TrainingSettings(
                epochs=settings.epochs, learning_rate=settings.learning_rate, weight_decay=0.1
            ),
            after_epoch=after_epoch,
        )
        embeddings = embed(network, images)
    return pack(binarize(embeddings.numpy()))


def shallow_codes(
    dataset: LabelledImages, method: str, n_bits: int, *, seed: int
) -> UInt8[np.ndarray, "n bytes"]:
    """Fit the hasher to the training images' pixels and encode all images.

    Raises `InputError` where the method cannot give so many bits from so many pixels.
    """
    train_rows, pixels = dataset.split.train, dataset.pixels().astype(np.float64)
    hasher = HASHERS[method](n_bits=n_bits, random_state=seed)
    with threadpool_limits(1):  # as in `reproducible`
        hasher.fit(pixels[train_rows], dataset.labels[train_rows])
        return pack(hasher.transform(pixels))


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """The same weights on every run: a seed of our own, and one thread.

    The order in which threads add up gradients depends on how many there are, and so would the
    figures. A network this small also trains faster on one.
    """
    threads, kernel_threads = torch.get_num_threads(), numba.get_num_threads()
    with seeded(seed):
        # Both: they may share one OpenMP, and then a kernel's number becomes torch's.
        numba.set_num_threads(1)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            numba.set_num_threads(kernel_threads)
            torch.set_num_threads(threads)
