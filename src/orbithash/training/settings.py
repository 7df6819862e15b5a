"""How a network is trained, whatever the method: one set of defaults, and the paper's."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from orbithash.errors import InputError


@dataclass(frozen=True)
class TrainingSettings:
    """What training needs besides data, a method and a seed."""

    epochs: int = 150
    batch_size: int = 500  # less where that is more than a quarter of the images
    images_per_class: int = 5  # in a batch; more where there are too few classes to fill it

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.01
    schedule: Literal["cosine", "steps"] = "cosine"  # steps: divided by 10 every 50 epochs
    weight_decay: float = 0.3
    momentum: float = 0.9  # of SGD

    reduction: str | None = None  # of the losses that add up triplets; None: each one's own

    hidden: int = 1024  # units between features and bits; 0: none, as in the paper
    dropout: float = 0.3  # of the hidden units
    memory: int = 0  # recent embeddings that lengthen the rank lists

    warmup: float = 0.0  # epochs, or parts of one, in which the rate grows from 0
    clip: float = 0.0  # the longest gradient; 0: any
    new_layer_rate: float = 1.0  # of the head, times the backbone's
    bias_rate: float = 1.0  # of biases, times their layer's
    precision: str = "float32"  # or bfloat16: of the network while it trains

    validation: float = 0.0  # share of the training images held out; 0: the last epoch is kept
    validate_every: int = 5  # epochs
    patience: int = 10  # validations without a better one before training stops

    def __post_init__(self) -> None:
        check_at_least(1, epochs=self.epochs, validate_every=self.validate_every)
        check_at_least(1, patience=self.patience)
        check_at_least(2, batch_size=self.batch_size, images_per_class=self.images_per_class)
        check_at_least(0, hidden=self.hidden, memory=self.memory)
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise InputError(
                f"learning_rate={self.learning_rate}, weight_decay={self.weight_decay}; "
                "the rate must be above 0 and the decay not below it"
            )
        for name in ("momentum", "dropout", "validation"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}; give a number from 0 to below 1")
        for name in ("warmup", "clip", "new_layer_rate", "bias_rate"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name}={getattr(self, name)}; give a number from 0 on")
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(f"precision={self.precision!r}; choose float32 or bfloat16")
        if self.optimizer not in ("adam", "sgd") or self.schedule not in ("cosine", "steps"):
            raise InputError(
                f"optimizer={self.optimizer!r}, schedule={self.schedule!r}; "
                "choose adam or sgd, and cosine or steps"
            )

    def for_batches_of(self, n_images: int) -> "TrainingSettings":
        """The same with the learning rate for batches of another size than `batch_size`.

        A batch of fewer images has a noisier gradient and takes smaller steps: in proportion with
        SGD, by the square root with Adam, whose steps are divided by the noise already.
        """
        ratio = n_images / self.batch_size
        factor = ratio if self.optimizer == "sgd" else ratio**0.5
        return replace(self, batch_size=n_images, learning_rate=self.learning_rate * factor)


def check_at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise InputError(f"{name}={number}; training needs at least {least}")


PRESETS: dict[str, TrainingSettings] = {
    "default": TrainingSettings(),
    # Chen et al., 2018, section 4: the head is the hash layer alone. Their plain sum over triplets
    # drives the sigmoid into its flat ends at this rate; divided by the anchors it trains.
    "paper": TrainingSettings(
        epochs=150,
        batch_size=100,
        optimizer="sgd",
        learning_rate=0.001,
        schedule="steps",
        weight_decay=5e-4,
        reduction="anchor",
        hidden=0,
        patience=30,  # all epochs: what is best may come after the rate has fallen
    ),
}

# The same two for fine-tuning a network on images: the backbone learns too, and slowly.
IMAGE_PRESETS: dict[str, TrainingSettings] = {
    "default": TrainingSettings(
        epochs=20,
        batch_size=100,
        learning_rate=1e-4,
        weight_decay=0.05,
        warmup=1.0,
        clip=5.0,
        new_layer_rate=3.0,
        hidden=0,
        validation=0.1,
        validate_every=2,
        patience=5,
    ),
    # As BVLC trained GoogLeNet, biases learn at twice the rate.
    "paper": replace(PRESETS["paper"], bias_rate=2.0, validation=0.1, patience=150),
}
