"""Any method on features: a head trained with a loss, or a hasher fitted."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64

from orbithash.codes import binarize, check_n_bits, pack
from orbithash.data import LabelledFeatures, batches_by_labels, check_trainable, hold_out
from orbithash.encoders import FeatureEncoder
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.networks import FeatureHead, embed
from orbithash.training.loop import Epoch, train
from orbithash.training.methods import check_memory, check_method, make_hasher, make_loss
from orbithash.training.seeding import seeded
from orbithash.training.settings import TrainingSettings

Labels = Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]

# Queries' codes, database's codes, their labels, and the number of bits: the higher the better.
Score = Callable[..., float]


@dataclass(frozen=True)
class Trained:
    """An encoder and how it came about; a hasher has no epochs."""

    encoder: FeatureEncoder
    history: tuple[Epoch, ...]
    seconds: float

    def best_epoch(self) -> Epoch | None:
        """The epoch whose weights were kept: the best that was validated, or else the last."""
        validated = [epoch for epoch in self.history if epoch.validation_map is not None]
        if validated:
            return max(validated, key=lambda epoch: epoch.validation_map or 0.0)
        return self.history[-1] if self.history else None


def train_on_features(
    data: LabelledFeatures,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    *,
    score: Score,
    options: Mapping[str, Any] | None = None,
    init: FeatureEncoder | None = None,
    seed: int = 0,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained:
    """Learn codes of `n_bits` from the training rows by any loss or hasher.

    Queries are never looked at. A loss chooses its epoch by `score` on training rows held out,
    which ask for those that train; a hasher chooses nothing and learns from all training rows.
    The seed decides the rows held out, the start and the batches, never the method: two losses
    with one seed begin at the same weights and see the same rows in the same order.
    """
    check_method(method)
    check_n_bits(n_bits)
    started = time.perf_counter()
    features, labels = data.features[data.split.train], data.labels[data.split.train]
    if method in LOSSES:
        head, history = train_head(
            features,
            labels,
            method,
            n_bits,
            settings,
            score=score,
            options=options or {},
            init=init,
            seed=seed,
            after_epoch=after_epoch,
        )
        encoder = FeatureEncoder(head)
    else:
        if init is not None:
            raise InputError(f"{method} is fitted in one go and cannot start from another run")
        encoder, history = fit_hasher(features, labels, method, n_bits, options or {}, seed), []
    return Trained(encoder, tuple(history), time.perf_counter() - started)


def fit_hasher(
    features: Float32[np.ndarray, "n d"],
    labels: Labels,
    method: str,
    n_bits: int,
    options: Mapping[str, Any],
    seed: int,
) -> FeatureEncoder:
    """Fit a hasher to all features."""
    hasher = make_hasher(method, options, n_bits=n_bits, seed=seed)
    try:
        return FeatureEncoder(hasher.fit(features, labels))
    except InputError:
        raise
    except ValueError as error:  # scikit-learn's and numpy's own words for what they cannot take
        reason = str(error).partition("\n")[0]
        raise InputError(f"{method} cannot be fitted: {reason}") from None


def train_head(
    features: Float32[np.ndarray, "n d"],
    labels: Labels,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    *,
    score: Score,
    options: Mapping[str, Any],
    init: FeatureEncoder | None,
    seed: int,
    after_epoch: Callable[[Epoch], None],
) -> tuple[FeatureHead, list[Epoch]]:
    """Train a network on features with a loss, and keep its best epoch."""
    check_trainable(labels)
    if labels.ndim == 1:  # from 0 on, whatever the classes are called
        labels = np.unique(labels, return_inverse=True)[1]
    loss = make_loss(
        method,
        options,
        n_bits=n_bits,
        n_classes=labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1,
        seed=seed,
        reduction=settings.reduction,
    )
    if settings.memory:
        check_memory(loss, method)
    rest, held_out = hold_out(labels, settings.validation, seed=seed)
    batches = batches_by_labels(
        labels[rest],
        batch_size=settings.batch_size,
        images_per_class=settings.images_per_class,
        seed=seed,
    )
    inputs, targets = torch.from_numpy(features), torch.from_numpy(labels)
    with seeded(seed):
        head = start_head(inputs[rest], n_bits, settings, init)

        def validate() -> float:
            codes = pack(binarize(embed(head, inputs).numpy()))
            return score(
                codes[held_out], codes[rest], labels[held_out], labels[rest], n_bits=n_bits
            )

        history = train(
            head,
            loss,
            inputs[rest],
            targets[rest],
            batches,
            settings.for_batches_of(batches.batch_size),
            validate=validate if len(held_out) else None,
            after_epoch=after_epoch,
        )
    return head, history


def start_head(
    features: Float32[torch.Tensor, "n d"],
    n_bits: int,
    settings: TrainingSettings,
    init: FeatureEncoder | None,
) -> FeatureHead:
    """A head at a random start, or at the weights of another run's."""
    n_features = features.shape[1]
    head = FeatureHead(n_features, n_bits, hidden=settings.hidden, dropout=settings.dropout)
    if init is None:
        head.standardise(features)
        return head
    if not isinstance(init.model, FeatureHead):
        raise InputError("the run to start from holds a hasher; give one that was trained")
    theirs = init.model
    for name in ("n_features", "n_bits", "hidden"):
        if getattr(theirs, name) != getattr(head, name):
            raise InputError(
                f"the run to start from has {name}={getattr(theirs, name)}, but here it is "
                f"{getattr(head, name)}; train with the same bits, features and head"
            )
    head.load_state_dict(theirs.state_dict())
    return head
