"""Where a network runs."""

import torch

from orbithash.errors import InputError


def check_device(device: str) -> None:
    """Raise unless numbers can be put there and taken back."""
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"cannot run a network on {device!r} here ({reason}); run it on cpu"
        ) from None
