"""Mixed precision where the hardware supports it, which only a trial in a child process can tell.

On some CPUs torch reports bfloat16 support and the process still dies of an illegal instruction. So
this file runs itself: as a script, it trains two mixed-precision steps of common layers.
"""

import signal
import subprocess
import sys
from pathlib import Path

from orbithash.errors import InputError

TIMEOUT = 120.0  # seconds


def check_precision(precision: str, device: str) -> None:
    """Raise unless training in this precision works here."""
    if precision == "float32":
        return
    reason = why_not(device)
    if reason is not None:
        raise InputError(
            f"{precision} does not work on {device} here ({reason}); train with float32"
        )


def why_not(device: str, *, script: Path = Path(__file__)) -> str | None:
    """Try mixed precision in a child process; return the reason for a failure, otherwise None."""
    try:
        # -P: modules beside the script must not hide installed ones.
        done = subprocess.run(
            [sys.executable, "-P", str(script), device],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"a trial did not end within {TIMEOUT:.0f} s"
    if done.returncode < 0:
        return f"a trial ended with {signal.Signals(-done.returncode).name}"
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return f"a trial failed{': ' + last if last else ''}"
    return None


def mixed_precision_works(device: str) -> bool:
    """Train two steps in mixed precision; return whether all gradients are finite."""
    import torch
    from torch import nn

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
    sys.exit(0 if mixed_precision_works(sys.argv[1]) else 1)
