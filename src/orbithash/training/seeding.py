"""Randomness that a seed decides and that leaves everybody else's alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What torch draws inside follows from the seed; outside its generators are as they were."""
    # Of every device: seeding reaches them all.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
