"""What each epoch did, and where it is logged: JSON lines, TensorBoard."""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.errors import InputError, MissingExtraError


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


Encoder = TypeVar("Encoder", bound=FeatureEncoder | ImageEncoder, covariant=True)


@dataclass(frozen=True)
class Trained(Generic[Encoder]):
    """An encoder and how it came about; a hasher has no epochs."""

    encoder: Encoder
    history: tuple[Epoch, ...]
    seconds: float

    def best_epoch(self) -> Epoch | None:
        """The epoch whose weights were kept: the best that was validated, or else the last."""
        validated = [epoch for epoch in self.history if epoch.validation_map is not None]
        if validated:
            return max(validated, key=lambda epoch: epoch.validation_map or 0.0)
        return self.history[-1] if self.history else None

    def outcome(self) -> dict[str, Any]:
        """What a run's scores.json holds: how training went, nothing of the queries."""
        best = self.best_epoch()
        return {
            "validation_map": best.validation_map if best else None,
            "best_epoch": best.number if best else None,
            "epochs": self.history[-1].number + 1 if self.history else 0,
            "seconds": round(self.seconds, 3),
        }


def log_to(file: Path) -> Callable[[Epoch], None]:
    """A function for `after_epoch` that writes the file anew, line by line.

    A run that goes on tells of its earlier epochs first, so the file needs nothing of what a
    process that was killed left in it.
    """
    file.unlink(missing_ok=True)

    def write(epoch: Epoch) -> None:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(asdict(epoch)) + "\n")

    return write


def read_log(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def tensorboard_to(folder: Path) -> Callable[[Epoch], None]:
    """A function for `after_epoch` that adds every figure of an epoch to the folder.

    A run that goes on tells of its earlier epochs first, so what the folder holds of them no
    longer counts.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that this one brings along
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder), purge_step=0)
    except ImportError:
        raise MissingExtraError("tensorboard") from None
    except OSError as error:
        raise InputError(
            f"cannot write into {folder}: {error.strerror}; give --tensorboard another folder"
        ) from None

    def write(epoch: Epoch) -> None:
        for name, value in asdict(epoch).items():
            if name != "number" and value is not None:
                writer.add_scalar(name, value, epoch.number)
        writer.flush()

    return write
