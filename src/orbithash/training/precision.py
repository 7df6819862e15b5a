"""Mixed precision where the hardware supports it, which only trying can tell."""

import signal
import subprocess
import sys
from pathlib import Path

from orbithash.errors import InputError

PROBE = Path(__file__).with_name("precision_probe.py")
PATIENCE = 120.0  # seconds


def check_precision(precision: str, device: str) -> None:
    """Raise unless training in this precision works here; a child process tries it first."""
    if precision == "float32":
        return
    reason = why_not(device)
    if reason is not None:
        raise InputError(
            f"{precision} does not work on {device} here ({reason}); train with float32"
        )


def why_not(device: str, *, probe: Path = PROBE) -> str | None:
    """What came of a mixed-precision step in a child process; None if it went well."""
    try:
        # -P: the probe's neighbours must not pass for modules of other names.
        done = subprocess.run(
            [sys.executable, "-P", str(probe), device],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"a trial did not end within {PATIENCE:.0f} s"
    if done.returncode < 0:
        return f"a trial ended with {signal.Signals(-done.returncode).name}"
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return f"a trial failed{': ' + last if last else ''}"
    return None
