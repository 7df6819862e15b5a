"""Settings of training: defaults, the paper's recipe, and TOML files of them.

method            the method they were found for
margin_of_bits    the margin as a share of the bits, so that it serves codes of any length
[options]         options that differ from the method's defaults
[settings]        fields of `TrainingSettings` that differ from the default preset

Other entries of the file are ignored.
"""

import json
import math
import tomllib
from collections import abc
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from orbithash.encoders import Encoder
from orbithash.errors import InputError


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of training besides the data, the method and the seed."""

    epochs: int = 150
    batch_size: int = 500  # reduced to a quarter of the images if that is less
    images_per_class: int = 5  # in a batch; more if there are too few classes to fill it

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.01
    schedule: Literal["cosine", "steps"] = "cosine"  # steps: divided by 10 every 50 epochs
    weight_decay: float = 0.3
    momentum: float = 0.9  # of SGD

    reduction: str | None = None  # of losses that sum over triplets; None: the default of the loss

    # Between features and bits. two-paths: layers, and a path that is fitted beside them from
    # labels; class-codes: a linear layer and a code of each class, for one label per image.
    head: Literal["layers", "two-paths", "class-codes"] = "two-paths"
    hidden: int = 1024  # of layers: units of the first; 0: a linear head, as in the paper
    dropout: float = 0.3  # of the hidden units
    memory: int = 0  # size of the memory bank that lengthens the ranking lists
    look: float = 0.0  # weight of the term by the look of images, beside any loss; 0: none

    warmup: float = 0.0  # epochs in which the rate grows from 0; may be a fraction
    clip: float = 0.0  # largest norm of the gradient; 0: no limit
    new_layer_rate: float = 1.0  # learning rate of the head, as a factor of the backbone's
    bias_rate: float = 1.0  # learning rate of biases, as a factor of their layer's
    precision: str = "float32"  # or bfloat16, for mixed precision in training

    validation: float = 0.0  # share of the training images held out; 0: the last epoch is kept
    validate_every: int = 5  # epochs
    patience: int = 10  # validations without an improvement before training stops

    def __post_init__(self) -> None:
        check_at_least(1, epochs=self.epochs, validate_every=self.validate_every)
        check_at_least(1, patience=self.patience)
        check_at_least(2, batch_size=self.batch_size, images_per_class=self.images_per_class)
        check_at_least(0, hidden=self.hidden, memory=self.memory)
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise InputError(
                f"learning_rate={self.learning_rate}, weight_decay={self.weight_decay}; "
                "learning_rate must be > 0 and weight_decay >= 0"
            )
        for name in ("momentum", "dropout", "validation"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(
                    f"{name}={getattr(self, name)}; give a number with 0 <= number < 1"
                )
        for name in ("warmup", "clip", "new_layer_rate", "bias_rate", "look"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name}={getattr(self, name)}; give a number >= 0")
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(f"precision={self.precision!r}; choose float32 or bfloat16")
        if self.head not in ("layers", "two-paths", "class-codes"):
            raise InputError(f"head={self.head!r}; choose layers, two-paths or class-codes")
        if self.optimizer not in ("adam", "sgd") or self.schedule not in ("cosine", "steps"):
            raise InputError(
                f"optimizer={self.optimizer!r}, schedule={self.schedule!r}; "
                "choose adam or sgd, and cosine or steps"
            )

    def identity(self) -> dict[str, Any]:
        """Return the settings by name, those of later versions only if they are set.

        So runs of earlier versions keep their identity.
        """
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in LATER_SETTINGS or value != LATER_SETTINGS[name]
        }

    def scaled_to_batch_size(self, n_images: int) -> "TrainingSettings":
        """Return settings with the learning rate for batches of another size.

        Smaller batches have noisier gradients and need smaller steps: proportional to the size with
        SGD, to its square root with Adam, which already divides by the noise.
        """
        ratio = n_images / self.batch_size
        factor = ratio if self.optimizer == "sgd" else ratio**0.5
        return replace(self, batch_size=n_images, learning_rate=self.learning_rate * factor)


LATER_SETTINGS = {"look": 0.0, "head": "layers"}  # new settings, with the values before


def check_at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise InputError(f"{name}={number}; training needs at least {least}")


PRESETS: dict[str, TrainingSettings] = {
    "default": TrainingSettings(),
    # Chen et al., 2018, section 4: a linear head. The plain sum over triplets saturates the
    # sigmoid at this rate; divided by the number of anchors it trains.
    "paper": TrainingSettings(
        epochs=150,
        batch_size=100,
        optimizer="sgd",
        learning_rate=0.001,
        schedule="steps",
        weight_decay=5e-4,
        reduction="anchor",
        head="layers",
        hidden=0,
        patience=30,  # no early stop: the best epoch may follow a drop of the rate
    ),
}

# For fine-tuning a whole network on images, at a low rate for the backbone.
IMAGE_PRESETS: dict[str, TrainingSettings] = {
    "default": TrainingSettings(
        epochs=20,
        batch_size=100,
        learning_rate=1e-4,
        weight_decay=0.05,
        warmup=1.0,
        clip=5.0,
        head="layers",
        new_layer_rate=3.0,
        hidden=0,
        validation=0.1,
        validate_every=2,
        patience=5,
    ),
    # Biases learn at twice the rate, as in BVLC's training of GoogLeNet.
    "paper": replace(PRESETS["paper"], bias_rate=2.0, validation=0.1, patience=150),
}


def resolve_settings(
    preset: str,
    settings: "TrainingSettings | Mapping[str, Any]",
    changes: Mapping[str, Any],
    *,
    on_images: bool,
    init: Encoder | None = None,
) -> TrainingSettings:
    """Return the settings of a run: those of the preset, then of the file, then the changes.

    If only the batch size is changed, the learning rate is scaled to it. With `init`, the number of
    hidden units is that of its run. Changes that are None are ignored.
    """
    changes = {name: value for name, value in changes.items() if value is not None}
    known = {field.name for field in fields(TrainingSettings)}
    if unknown := sorted(changes.keys() - known):
        raise InputError(
            f"there is no setting {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )
    kinds = get_type_hints(TrainingSettings)
    for name, value in changes.items():
        if not is_of_kind(value, kinds[name]):
            raise InputError(f"{name} is {value!r}; it must be {described(kinds[name])}")
    if isinstance(settings, TrainingSettings):
        return replace(settings, **changes)
    of_init = getattr(init, "head_sizes", {})
    if "hidden" in of_init:
        changes = {"hidden": of_init["hidden"]} | changes
    if "n_classes" in of_init:
        changes = {"head": "class-codes"} | changes
    presets = IMAGE_PRESETS if on_images else PRESETS
    if preset not in presets:
        raise InputError(f"there is no preset {preset!r}; choose from {', '.join(presets)}")
    given = dict(settings) | changes
    resolved = replace(presets[preset], **given)
    if "batch_size" in given and "learning_rate" not in given:
        return replace(presets[preset].scaled_to_batch_size(resolved.batch_size), **given)
    return resolved


@dataclass(frozen=True, eq=False)
class ChosenSettings:
    """A method, its options and its training settings, as read from a file."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    margin_of_bits: float | None = None

    def options_at(self, n_bits: int) -> dict[str, Any]:
        """The method's options for codes of this length."""
        if self.margin_of_bits is None:
            return dict(self.options)
        return {**self.options, "margin": self.margin_of_bits * n_bits}


def read_settings(file: Path) -> ChosenSettings:
    """Read and validate a settings file."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; check the path") from None
    except ValueError as error:
        raise InputError(
            f"{file} has no settings to train with ({error}); give a file that tune wrote"
        ) from None
    if "method" not in values:
        raise InputError(f"{file} has settings for no method; give a file that tune wrote")
    kinds = get_type_hints(ChosenSettings)
    ours = {name: value for name, value in values.items() if name in kinds}
    check_kinds(file, "", ours, kinds)
    check_kinds(file, "settings.", ours.get("settings", {}), get_type_hints(TrainingSettings))
    return ChosenSettings(**ours)


def check_kinds(
    file: Path, place: str, values: Mapping[str, Any], kinds: Mapping[str, Any]
) -> None:
    """Raise unless every value has a known name and the right type."""
    for name, value in values.items():
        if name not in kinds:
            raise InputError(f"{file} sets {name!r}; there are {', '.join(sorted(kinds))}")
        if not is_of_kind(value, kinds[name]):
            raise InputError(
                f"{file} sets {place}{name} to {value!r}; it must be {described(kinds[name])}"
            )


def is_of_kind(value: Any, kind: Any) -> bool:
    """Whether a value of a TOML file is what a field is declared to be.

    >>> is_of_kind(3, float), is_of_kind(3.5, int), is_of_kind(True, int), is_of_kind("3", float)
    (True, False, False, False)
    """
    if alternatives := get_args(kind):
        if get_origin(kind) is Literal:
            return value in alternatives
        if get_origin(kind) is abc.Mapping:
            return isinstance(value, Mapping)
        return any(is_of_kind(value, alternative) for alternative in alternatives)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def described(kind: Any) -> str:
    """Describe a type for an error message."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is abc.Mapping:
        return "a table"
    plain = next((each for each in get_args(kind) if each is not type(None)), kind)
    return {int: "a whole number", float: "a number", str: "text"}[plain]


def as_toml(values: Mapping[str, Any]) -> str:
    """Write plain values, and tables of them, as TOML.

    >>> print(as_toml({"method": "triplet", "settings": {"epochs": 50, "memory": 0}}))
    method = "triplet"
    <BLANKLINE>
    [settings]
    epochs = 50
    memory = 0
    <BLANKLINE>
    """
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{name} = {json.dumps(v)}" for name, v in values.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {inline(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """A value on one line; JSON's numbers, strings and booleans are TOML's too."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
