"""Where a head starts: at the weights of one that was trained on features."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64

from orbithash.codes import binarize, check_n_bits, pack
from orbithash.data import LabelledFeatures
from orbithash.encoders import FeatureEncoder
from orbithash.encoders.runs.fingerprints import digest_of_arrays, digest_of_weights
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.networks import FeatureHead, embed
from orbithash.training.batches import Looks, TensorBatches, only_look, several_looks
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.distributed import ALONE, Processes
from orbithash.training.environment import seeded
from orbithash.training.history import Epoch, Trained
from orbithash.training.loop import train
from orbithash.training.methods import (
    Labels,
    Score,
    check_method,
    make_hasher,
    prepare,
    run_settings,
)
from orbithash.training.settings import TrainingSettings


def start_from(head: FeatureHead, init: FeatureEncoder) -> None:
    """Take over another head's weights, which must be of the same shape."""
    theirs = init.model
    if not isinstance(theirs, FeatureHead):
        raise InputError("the run to start from holds a hasher; give one that was trained")
    for name in ("n_features", "n_bits", "hidden"):
        if getattr(theirs, name) != getattr(head, name):
            raise InputError(
                f"the run to start from has {name}={getattr(theirs, name)}, but here it is "
                f"{getattr(head, name)}; train with the same features, --bits and --hidden"
            )
    head.load_state_dict(theirs.state_dict())


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
    after_step: Callable[[float, float], None] = lambda epochs, loss: None,
    checkpoints: Checkpoints | None = None,
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> Trained[FeatureEncoder]:
    """Learn codes of `n_bits` from the training rows by any loss or hasher.

    Queries are never looked at. Where `settings.validation` holds training rows out, a loss keeps
    the epoch that is best by `score` on them, asking for those that train; by default none are
    held out and the last epoch is kept. A hasher chooses nothing and learns from all training rows.
    The seed decides the rows held out, the start and the batches, never the method: two losses
    with one seed begin at the same weights and see the same rows in the same order. Where the data
    have further views of an image, each batch shows one of its looks, drawn by chance; hashers see
    every image as it is encoded.
    """
    check_method(method)
    check_n_bits(n_bits)
    if method in LOSSES:
        head, history = train_head(
            data,
            method,
            n_bits,
            settings,
            score=score,
            options=options or {},
            init=init,
            seed=seed,
            after_epoch=after_epoch,
            after_step=after_step,
            checkpoints=checkpoints,
            stopping=stopping,
            processes=processes,
        )
        # Summed up, because a run that was stopped has gone on in several processes.
        seconds = sum(epoch.seconds for epoch in history)
        return Trained(FeatureEncoder(head), tuple(history), seconds)
    if init is not None:
        raise InputError(f"{method} is fitted in one go and cannot start from another run")
    started = time.perf_counter()
    rows = data.split.train
    encoder = fit_hasher(
        data.features[rows], data.labels[rows], method, n_bits, options or {}, seed
    )
    return Trained(encoder, (), time.perf_counter() - started)


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
    data: LabelledFeatures,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    *,
    score: Score,
    options: Mapping[str, Any],
    init: FeatureEncoder | None,
    seed: int,
    after_epoch: Callable[[Epoch], None],
    after_step: Callable[[float, float], None],
    checkpoints: Checkpoints | None,
    stopping: Callable[[], bool],
    processes: Processes,
) -> tuple[FeatureHead, list[Epoch]]:
    """Train a network on features with a loss, and keep its best epoch."""
    features = data.features[data.split.train]
    prepared = prepare(
        data.labels[data.split.train],
        method,
        n_bits,
        settings,
        options=options,
        seed=seed,
        classes=data.classes,
    )
    labels, rest, held_out = prepared.labels, prepared.rest, prepared.held_out
    inputs, targets = torch.from_numpy(features), torch.from_numpy(labels)
    looks = looks_at(data, data.split.train[rest], seed=seed)
    views = (data.views.features, data.views.of) if data.views else ()
    with seeded(seed):
        head = start_head(inputs[rest], n_bits, settings, init)
        made_with = run_settings(method, n_bits, settings, options, seed) | {
            "features": digest_of_arrays(features, labels, *views),
            "init": None if init is None else digest_of_weights(head),
        }

        def validate() -> float:
            codes = pack(binarize(embed(head, inputs).numpy()))
            return score(
                codes[held_out], codes[rest], labels[held_out], labels[rest], n_bits=n_bits
            )

        history = train(
            head,
            prepared.loss,
            TensorBatches(looks, targets[rest], prepared.batches, processes),
            settings.for_batches_of(prepared.batches.batch_size),
            validate=validate if len(held_out) else None,
            after_epoch=after_epoch,
            after_step=after_step,
            checkpoints=checkpoints and checkpoints.of(made_with),
            stopping=stopping,
            processes=processes,
        )
    return head, history


def looks_at(data: LabelledFeatures, rows: Int64[np.ndarray, " n"], *, seed: int) -> Looks:
    """What training sees of these rows: their features, and further views where there are any."""
    inputs = torch.from_numpy(data.features[rows])
    if data.views is None:
        return only_look(inputs)
    position = np.full(len(data), -1)
    position[rows] = np.arange(len(rows))
    owners = position[data.views.of]
    kept = owners >= 0  # views of images that are held out teach nothing
    views = torch.from_numpy(data.views.features[kept])
    return several_looks(inputs, views, owners[kept], seed=seed)


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
        # The paper's head, which has no hidden layer, starts as drawn: its figures were made so.
        head.fit_start(features, spread=settings.hidden > 0)
    else:
        start_from(head, init)
    return head
