"""One mixed-precision step of the kinds of layers that backbones have; run in a process of its own.

On some processors torch announces bfloat16 and the process dies of an illegal instruction all the
same. `precision.py` runs this file and looks how it ended; it imports nothing of ours.
"""

import sys

import torch
from torch import nn


def step(device: str) -> bool:
    network = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.BatchNorm2d(64),
        nn.Conv2d(64, 32, 1),
        nn.GELU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(64),
        nn.Linear(64, 32),
    )
    network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.rand(8, 3, 64, 64, device=device)
    for _ in range(2):
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            embeddings = network(images.to(memory_format=torch.channels_last)).sigmoid()
        embeddings.float().square().mean().backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    return all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


if __name__ == "__main__":
    sys.exit(0 if step(sys.argv[1]) else 1)
