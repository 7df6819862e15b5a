"""What one pass over the training images did."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """What one pass over the training images did."""

    number: int  # from 0
    loss: float  # mean over the batches
    learning_rate: float
    active_share: float | None = None  # of the triplets within the margin, if the loss has any
    bit_balance: float = 0.0  # 1: every bit is set for half of the images; 0: all bits are constant
    validation_map: float | None = None  # in the epochs that were validated
    seconds: float = 0.0
