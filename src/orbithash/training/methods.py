"""A method made for the data at hand: its loss or hasher, the rows held out, the batches."""

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from torch import nn

from orbithash.data import (
    ClassBalancedBatches,
    ShuffledBatches,
    batches_by_labels,
    check_trainable,
    hold_out,
)
from orbithash.errors import InputError
from orbithash.hashers import HASHERS, Hasher
from orbithash.losses import LOSSES
from orbithash.training.settings import TrainingSettings


def check_method(method: str) -> None:
    if method not in LOSSES and method not in HASHERS:
        raise InputError(
            f"there is no method {method!r}; choose a loss ({', '.join(LOSSES)}) "
            f"or a hasher ({', '.join(HASHERS)})"
        )


def make_loss(
    method: str,
    options: Mapping[str, Any],
    *,
    n_bits: int,
    n_classes: int,
    seed: int,
    reduction: str | None = None,
) -> nn.Module:
    """The loss with these options, told of bits, classes and seed where it asks for them."""
    data = {"n_bits": n_bits, "n_classes": n_classes, "seed": seed}
    check_options(method, LOSSES[method], options, ours=data.keys())
    given = data if reduction is None else data | {"reduction": reduction}
    accepted = inspect.signature(LOSSES[method]).parameters.keys()
    return LOSSES[method](**{name: given[name] for name in accepted & given.keys()} | dict(options))


def make_hasher(method: str, options: Mapping[str, Any], *, n_bits: int, seed: int) -> Hasher:
    """The hasher with these options."""
    check_options(method, HASHERS[method], options, ours={"n_bits", "random_state"})
    return HASHERS[method](n_bits=n_bits, random_state=seed, **options)


def check_options(method: str, kind: type, options: Mapping[str, Any], *, ours: Set[str]) -> None:
    """Raise unless the method has these options, each of the kind of its default."""
    parameters = inspect.signature(kind).parameters
    accepted = {name: parameters[name].default for name in parameters.keys() - ours}
    for name, value in options.items():
        if name not in accepted:
            names = ", ".join(sorted(accepted)) or "none"
            raise InputError(f"{method} has no option {name!r}; it has {names}")
        if not same_kind(value, accepted[name]):
            raise InputError(
                f"option {name} of {method} is {value!r}; give a value like its default, "
                f"{'a number' if accepted[name] is None else repr(accepted[name])}"
            )


def same_kind(value: Any, default: Any) -> bool:
    """Whether an option may have this value: a default of None stands for a number.

    >>> same_kind(3, 2.0), same_kind(3.5, 2), same_kind("high", 2.0), same_kind(True, 2)
    (True, False, False, False)
    """
    if isinstance(default, bool | str):
        return type(value) is type(default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (isinstance(value, int) or not isinstance(default, int))


def check_memory(loss: nn.Module, method: str) -> None:
    """Raise unless the loss can rank against a memory."""
    if "ref_emb" not in inspect.signature(loss.forward).parameters:
        raise InputError(f"{method} takes no memory of recent embeddings; train it with memory=0")


# Queries' codes, database's codes, their labels, and the number of bits: the higher the better.
Score = Callable[..., float]

Labels = Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]


@dataclass(frozen=True, eq=False)
class Preparation:
    """A loss, and which of the training images train and which validate, by position."""

    loss: nn.Module
    labels: Labels  # from 0 on, whatever the classes are called
    rest: Int64[np.ndarray, " rest"]
    held_out: Int64[np.ndarray, " held_out"]
    batches: ClassBalancedBatches | ShuffledBatches  # of positions in `rest`


def prepare(
    labels: Labels,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    *,
    options: Mapping[str, Any],
    seed: int,
    classes: Sequence[str] | None = None,
) -> Preparation:
    """Everything that follows from the labels of the training images, the method and the seed."""
    check_trainable(labels, classes)
    if labels.ndim == 1:
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
    return Preparation(loss, labels, rest, held_out, batches)


def run_settings(
    method: str, n_bits: int, settings: TrainingSettings, options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What a run depends on besides its data and its start, by name."""
    return asdict(settings) | dict(options) | {"method": method, "bits": n_bits, "seed": seed}
