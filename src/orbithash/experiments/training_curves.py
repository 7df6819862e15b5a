"""How training went, epoch by epoch: means over the seeds of a row, from the runs' logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from orbithash.encoders.run_folder import LOG
from orbithash.experiments.plan import Run
from orbithash.experiments.run import run_folder
from orbithash.training import read_log

MEASURES = ("loss", "active_share", "validation_map")


@dataclass(frozen=True, eq=False)
class History:
    """What each epoch measured; NaN where it did not."""

    loss: Float[np.ndarray, " epochs"]
    active_share: Float[np.ndarray, " epochs"]
    validation_map: Float[np.ndarray, " epochs"]


Histories = Mapping[tuple[str, str, int], History]  # by row, source and code length


def read_histories(runs: Sequence[Run], out: Path) -> Histories:
    """The histories of the rows that were trained; hashers have none."""
    logs: dict[tuple[str, str, int], list[list[dict[str, Any]]]] = {}
    for run in runs:
        file = run_folder(run, out) / LOG
        if run.epochs() and file.exists():
            logs.setdefault((run.row, run.source.name, run.n_bits), []).append(read_log(file))
    return {key: mean_history(of_seeds) for key, of_seeds in logs.items()}


def mean_history(logs: Sequence[Sequence[Mapping[str, Any]]]) -> History:
    """The mean of several logs, as long as the shortest."""
    n_epochs = min(len(log) for log in logs)
    means = {}
    for measure in MEASURES:
        # numpy reads None, where nothing was measured, as NaN.
        values = np.array(
            [[epoch.get(measure) for epoch in log[:n_epochs]] for log in logs], dtype=float
        )
        means[measure] = values.mean(axis=0)
    return History(**means)
