"""How a network is trained, whatever the method."""

from dataclasses import dataclass

from orbithash.errors import InputError


@dataclass(frozen=True)
class TrainingSettings:
    """What the loop needs besides a network, a loss and batches."""

    epochs: int
    learning_rate: float
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs={self.epochs}; training needs at least 1")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise InputError(
                f"learning_rate={self.learning_rate}, weight_decay={self.weight_decay}; "
                "the rate must be above 0 and the decay not below it"
            )
