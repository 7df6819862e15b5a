"""A method and what it needs from the data: its loss or hasher, the rows held out, the batches."""

import copy
import inspect
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, Shaped
from sklearn.base import clone
from torch import nn

from orbithash.codes import check_n_bits
from orbithash.data import (
    ClassBalancedBatches,
    PartlyLabelledBatches,
    ShuffledBatches,
    Split,
    batches_by_labels,
    check_trainable,
    partly_labelled_batches,
    shuffled_batches,
    training_rows,
)
from orbithash.data.sampling import MIN_BATCH_SIZE
from orbithash.encoders.runs.fingerprints import weights_digest
from orbithash.errors import InputError
from orbithash.hashers import HASHERS, Hasher
from orbithash.hashers.base import SupervisedHasher
from orbithash.losses import LOSSES, LookLoss, NestedLoss
from orbithash.losses.nested import length_weights
from orbithash.losses.teacher import takes_teacher
from orbithash.training.settings import TrainingSettings

ORDER_AWARE = "order-aware"

Labels = Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"] | Int64[np.ndarray, "n classes"]


@dataclass(frozen=True, eq=False)
class Method:
    """A loss or a hasher: by its registry name with options, or as an object."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    given: nn.Module | Hasher | None = None
    nested: tuple[int, ...] = ()  # shorter code lengths whose prefixes are trained too
    from_labels: bool = True  # otherwise a loss learns from a teacher alone, a hasher without y

    @property
    def is_loss(self) -> bool:
        return isinstance(self.given, nn.Module) or (self.given is None and self.name in LOSSES)

    @property
    def takes_teacher(self) -> bool:
        """Whether the loss takes a teacher's vectors beside the labels."""
        given = isinstance(self.given, nn.Module) and takes_teacher(self.given)
        return given or (self.is_loss and not self.from_labels)

    def needs_teacher(self, settings: TrainingSettings) -> bool:
        """Whether training with these settings needs a teacher's vectors."""
        return self.takes_teacher or (self.is_loss and settings.look > 0)

    def loss(
        self,
        *,
        n_bits: int,
        n_classes: int,
        seed: int,
        reduction: str | None = None,
        look: float = 0.0,
    ) -> nn.Module:
        """Return a new loss; bits, classes, seed and reduction are passed if its class takes them.

        A given loss is copied, so that its parameters and buffers are the same in the next run. Of
        nested codes, the loss of each length is that of codes of this length alone; a margin in
        bits is scaled to it. With `look`, each has a term by a teacher, of this weight.
        """
        if look > 0 and self.takes_teacher:
            raise InputError(
                f"{self.name} learns from a teacher already; set the weight of its term itself, "
                "and leave look out"
            )
        of_data: dict[str, Any] = {"n_classes": n_classes, "seed": seed}
        if reduction is not None:
            of_data["reduction"] = reduction
        if not self.nested:
            return with_look(self._loss_of_length(n_bits, n_bits, of_data), look)
        lengths = (*self.nested, n_bits)
        losses = {n: self._loss_of_length(n, n_bits, of_data) for n in lengths}
        return NestedLoss({n: with_look(loss, look) for n, loss in losses.items()})

    def _loss_of_length(self, n: int, n_bits: int, of_data: Mapping[str, Any]) -> nn.Module:
        """Return a loss of the first n of all bits."""
        if not self.from_labels and self.given is None:
            return LookLoss(None, 1.0)
        if isinstance(self.given, nn.Module):
            given = copy.deepcopy(self.given)
            parts: list[Any] = single_losses(given) if n != n_bits else []
            for part in parts:
                if hasattr(part, "margin_of_bits") and part.margin is not None:
                    part.margin *= n / n_bits
            return given
        kind = LOSSES[self.name]
        passed = {"n_bits": n, **of_data}
        check_options(self.name, kind, self.options, reserved=passed.keys() - {"reduction"})
        accepted = inspect.signature(kind).parameters.keys()
        arguments = {name: passed[name] for name in accepted & passed.keys()} | dict(self.options)
        if n != n_bits and hasattr(kind, "margin_of_bits") and arguments.get("margin") is not None:
            arguments["margin"] *= n / n_bits
        return kind(**arguments)

    def hasher(self, *, n_bits: int, seed: int) -> Hasher:
        """Return the hasher, not fitted."""
        if isinstance(self.given, Hasher):
            if self.given.n_bits != n_bits:
                raise InputError(
                    f"the hasher has {self.given.n_bits} bits, but bits is {n_bits}; give the same"
                )
            unfitted: Hasher = clone(self.given)
            return unfitted
        check_options(
            self.name, HASHERS[self.name], self.options, reserved={"n_bits", "random_state"}
        )
        return HASHERS[self.name](n_bits=n_bits, random_state=seed, **self.options)

    def identity(self) -> dict[str, Any]:
        """Return all that determines the method, for a checkpoint's fingerprint."""
        if isinstance(self.given, nn.Module):
            described = f"{self.given} {plain_attributes(self.given)} {weights_digest(self.given)}"
            return {"method": self.name, "loss": described}
        # Left out otherwise, to resume runs of earlier versions.
        labels = {} if self.from_labels else {"labels": "none"}
        return {**self.options, "method": self.name, **labels}


def with_look(loss: nn.Module, weight: float) -> nn.Module:
    """Return the loss, with a term by a teacher's neighbours if its weight is above 0."""
    return LookLoss(loss, weight) if weight > 0 else loss


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Return the numbers and strings that a module holds, such as a margin."""
    return {
        f"{name}.{key}" if name else key: value
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, bool | int | float | str) and key != "training"
    }


def as_method(
    method: "str | nn.Module | Hasher | Method", options: Mapping[str, Any] | None = None
) -> Method:
    """Return the method that a user names, or gives as a loss or an estimator."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        if method not in LOSSES and method not in HASHERS:
            raise InputError(
                f"there is no method {method!r}; choose a loss ({', '.join(LOSSES)}) "
                f"or a hasher ({', '.join(HASHERS)})"
            )
        return Method(method, dict(options or {}))
    if not isinstance(method, nn.Module | Hasher):
        raise InputError(
            f"got a method of type {type(method).__name__}; give the name of one, a loss (a torch "
            "module called with embeddings and labels) or a hasher"
        )
    if options:
        raise InputError(
            f"{', '.join(options)}: options belong to methods given by name; set them on the "
            f"{type(method).__name__} itself"
        )
    kinds: dict[str, type] = {**LOSSES, **HASHERS}
    names = [name for name, kind in kinds.items() if type(method) is kind]
    name = names[0] if names else type(method).__name__
    # Recorded with the run: the arguments that the object was made with, as far as it shows them.
    arguments = inspect.signature(type(method)).parameters.keys() - {"n_bits", "random_state"}
    held = vars(method)
    recorded = {
        key: held[key] for key in sorted(arguments) if isinstance(held.get(key), str | int | float)
    }
    return Method(name, recorded, given=method)


def with_nested(method: Method, nested: Sequence[int], n_bits: int) -> Method:
    """Return the method with shorter code lengths to train in the same run."""
    lengths = tuple(sorted(nested))
    if not lengths:
        return method
    for n in lengths:
        check_n_bits(n)
    if lengths[-1] >= n_bits or len(set(lengths)) < len(lengths):
        raise InputError(
            f"nested is {', '.join(map(str, nested))}; give different lengths below the {n_bits} "
            "bits of the whole code, which is trained in any case"
        )
    if not method.is_loss:
        raise InputError(
            f"{method.name} is a hasher, and only losses train nested codes; leave nested out, and "
            "fit it at each length"
        )
    if method.given is not None and "n_bits" in inspect.signature(type(method.given)).parameters:
        raise InputError(
            f"{method.name} was made for one number of bits; for nested codes give the method by "
            "its name, so that each length has its own"
        )
    return replace(method, nested=tuple(map(int, lengths)))


def without_labels(method: Method) -> Method:
    """Return the method without labels: the order-aware loss of a teacher's neighbours, a hasher.

    A given loss must be one that needs no labels, a `LookLoss` of None.
    """
    kind = type(method.given) if method.given is not None else HASHERS.get(method.name)
    own_loss = isinstance(method.given, LookLoss) and method.given.loss is None
    unsupervised = kind is not None and not issubclass(kind, nn.Module | SupervisedHasher)
    if not (unsupervised or own_loss or (kind is None and method.name == ORDER_AWARE)):
        needless = [
            name for name, each in HASHERS.items() if not issubclass(each, SupervisedHasher)
        ]
        raise InputError(
            f"{method.name} learns from labels; without labels choose order-aware by its name, "
            "which then learns from the look of images, or a hasher that needs none "
            f"({', '.join(needless)})"
        )
    if method.name == ORDER_AWARE and method.options:
        raise InputError(
            f"{', '.join(method.options)}: these are options of the loss by labels; leave them out "
            "with --labels none"
        )
    return replace(method, from_labels=False)


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """A loss, the rows that train and those held out for validation, and the batches."""

    loss: nn.Module
    # Of `train` and then `held_out`. One-label classes are numbered from 0; images without labels
    # have -1, or a row of -1.
    labels: Labels
    train: Int64[np.ndarray, " train"]  # images with labels, then those without
    held_out: Int64[np.ndarray, " held_out"]
    batches: ClassBalancedBatches | ShuffledBatches | PartlyLabelledBatches  # positions in `train`
    n_labelled: int

    @property
    def train_labels(self) -> Labels:
        return self.labels[: len(self.train)]

    @property
    def held_out_labels(self) -> Labels:
        return self.labels[len(self.train) :]


def plan_training(
    labels: Labels,
    split: Split,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    *,
    seed: int,
    classes: Sequence[str] | None = None,
) -> TrainingPlan:
    """Choose the rows that train and those held out, and create the loss and the batch sampler.

    Validation rows are those of the split, if it has any, and otherwise a share of the training
    rows, as the settings say.
    """
    if settings.head == "class-codes" and (labels.ndim == 2 or not method.from_labels):
        raise InputError(
            "class codes are for images with one label each; train images with several labels, or "
            "without labels, with --head layers"
        )
    if method.from_labels:
        check_trainable(labels[split.train], classes)
    elif len(split.train) < MIN_BATCH_SIZE:
        raise InputError(
            f"there are {len(split.train)} training images; learning from their look needs at "
            f"least {MIN_BATCH_SIZE}"
        )
    train, held_out = training_rows(labels, split, settings.validation, seed=seed)
    check_validation(labels[held_out], labels[train])
    rows = np.concatenate([train, held_out])
    used = labels[rows]
    if labels.ndim == 1:
        numbers, used = np.unique(used, return_inverse=True)
    loss = method.loss(
        n_bits=n_bits,
        n_classes=labels.shape[1] if labels.ndim == 2 else len(numbers),
        seed=seed,
        reduction=settings.reduction,
        look=settings.look,
    )
    if settings.memory:
        for part in single_losses(loss):
            check_takes_memory(part, method.name)
    sizes = {"batch_size": settings.batch_size, "images_per_class": settings.images_per_class}
    batches: ClassBalancedBatches | ShuffledBatches | PartlyLabelledBatches
    n_labelled, n_unlabelled = len(train), len(split.unlabelled)
    if not method.from_labels:
        batches = shuffled_batches(n_labelled, batch_size=settings.batch_size, seed=seed)
    elif n_unlabelled:
        batches = partly_labelled_batches(used[:n_labelled], n_unlabelled, **sizes, seed=seed)
        marks = np.full((n_unlabelled, *used.shape[1:]), -1)
        used = np.concatenate([used[:n_labelled], marks, used[n_labelled:]])
        train = np.concatenate([train, split.unlabelled])
    else:
        batches = batches_by_labels(used[:n_labelled], **sizes, seed=seed)
    return TrainingPlan(loss, used, train, held_out, batches, n_labelled)


def single_losses(loss: nn.Module) -> list[nn.Module]:
    """Return the losses by labels that a combination consists of, or the loss itself."""
    if isinstance(loss, NestedLoss):
        return [single for part in loss.losses.values() for single in single_losses(part)]
    if isinstance(loss, LookLoss):
        return [] if loss.loss is None else single_losses(loss.loss)
    return [loss]


def run_identity(
    method: Method, n_bits: int, settings: TrainingSettings, seed: int
) -> dict[str, Any]:
    """Return all that a run depends on besides its data and initial weights, by name."""
    identity = settings.identity() | method.identity() | {"bits": n_bits, "seed": seed}
    # Left out otherwise, to resume runs of earlier versions.
    return identity | {"nested": nested_weights(method, n_bits)} if method.nested else identity


def nested_weights(method: Method, n_bits: int) -> dict[str, float]:
    """Return the weight of each length of nested codes, for JSON; empty if they are not nested."""
    if not method.nested:
        return {}
    weights = length_weights((*method.nested, n_bits))
    return {str(length): weight for length, weight in weights.items()}


def check_options(
    method: str, kind: type, options: Mapping[str, Any], *, reserved: Set[str]
) -> None:
    """Raise unless the method has these options, each of the type of its default."""
    parameters = inspect.signature(kind).parameters
    accepted = {name: parameters[name].default for name in parameters.keys() - reserved}
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


def check_validation(
    labels: Shaped[np.ndarray, "held_out *classes"], train: Shaped[np.ndarray, "train *classes"]
) -> None:
    """Raise if no validation row has a relevant training row: none could be scored."""
    shared = np.isin(labels, train) if labels.ndim == 1 else labels.any(axis=0) & train.any(axis=0)
    if len(labels) and not shared.any():
        raise InputError(
            f"none of the {len(labels)} validation images shares a label with a training image; "
            "give validation images of the same classes"
        )


def check_takes_memory(loss: nn.Module, method: str) -> None:
    """Raise unless the loss can rank against a memory of recent embeddings."""
    if "ref_emb" not in inspect.signature(loss.forward).parameters:
        raise InputError(f"{method} takes no memory of recent embeddings; train it with memory=0")
