"""A run's figures for TensorBoard, beside the log."""

import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from orbithash.errors import InputError, MissingExtraError
from orbithash.training.epoch import Epoch


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
