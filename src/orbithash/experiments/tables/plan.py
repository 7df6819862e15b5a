"""From declared tables to runs: each is one row at one code length from one seed on one source."""

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orbithash.codes import check_n_bits
from orbithash.errors import InputError
from orbithash.experiments.tables.sources import Source
from orbithash.experiments.tables.spec import Row, Table, read_rows
from orbithash.hashers import HASHERS
from orbithash.losses import LOSSES
from orbithash.training import IMAGE_PRESETS, PRESETS, TrainingSettings
from orbithash.training.methods import as_method

# To be raised when the same settings train or score otherwise than before: finished runs are taken
# up by their identity, and a table must not mix the two.
RECIPE = 1
FINE_TUNING_RECIPE = 2  # 2: a new head is fitted to the first batch


@dataclass(frozen=True, eq=False)
class Stage:
    """One training: a method with its options, and settings unless it is a hasher."""

    method: str
    options: Mapping[str, Any]
    settings: TrainingSettings | None
    margin_of_bits: float | None = None  # where the options' margin comes from, if it does


@dataclass(frozen=True, eq=False)
class Run:
    """What is trained and scored as one; a later stage goes on from the one before."""

    row: str
    source: Source
    n_bits: int
    seed: int
    preset: str
    stages: tuple[Stage, ...]

    @property
    def is_fine_tuned(self) -> bool:
        """Whether the whole network is trained, and not a head or a hasher on its features."""
        return self.source.fine_tuning is not None and self.stages[0].settings is not None

    @property
    def key(self) -> tuple[str, str, int, int]:
        return (self.source.name, self.row, self.n_bits, self.seed)

    def identity(self) -> dict[str, Any]:
        """All that decides the outcome: runs of equal identity need not be repeated."""
        digest = self.source.digest
        if self.is_fine_tuned and self.source.fine_tuning is not None:
            digest = self.source.fine_tuning.digest
        return {
            "recipe": FINE_TUNING_RECIPE if self.is_fine_tuned else RECIPE,
            "data": digest,
            "n_bits": self.n_bits,
            "seed": self.seed,
            "stages": [described(stage) for stage in self.stages],
        }

    def folder(self) -> Path:
        """Where it is kept. Its identity is in the name: changed settings lead to another folder,
        so that nothing is overwritten and going back to earlier settings costs nothing."""
        text = json.dumps(self.identity(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return Path(self.source.name, self.row, f"{self.n_bits}-bits", f"seed-{self.seed}-{digest}")

    def epochs(self) -> int:
        """At most so many in all stages; a hasher has none."""
        return sum(stage.settings.epochs for stage in self.stages if stage.settings)

    def __str__(self) -> str:
        return f"{self.row}, {self.n_bits} bits, seed {self.seed}, {self.source.name}"


def plan_runs(
    table: Table,
    sources: Sequence[Source],
    *,
    bits: Sequence[int] | None = None,
    seeds: Sequence[int],
    epochs: int | None = None,
) -> list[Run]:
    """The runs of a table, at its own code lengths unless others are asked for.

    Seeds come outermost: a table that is stopped early has few runs of every method rather than
    all runs of some.
    """
    lengths = tuple(dict.fromkeys(bits or table.bits))
    for n_bits in lengths:
        check_n_bits(n_bits)
    stages = {
        (line.row.name, n_bits, fine_tuned): row_stages(
            line.row, n_bits, epochs=epochs, fine_tuned=fine_tuned
        )
        for line in table.lines
        for n_bits in lengths
        for fine_tuned in {source.fine_tuning is not None for source in sources} or {False}
    }
    return [
        Run(
            row=line.row.name,
            source=source,
            n_bits=n_bits,
            seed=seed,
            preset=line.row.preset,
            stages=stages[line.row.name, n_bits, source.fine_tuning is not None],
        )
        for seed in seeds
        for source in sources
        for n_bits in lengths
        for line in table.lines
    ]


def without_repeats(runs: Iterable[Run]) -> list[Run]:
    """Every run once, however many tables it is in; the seeds outermost again."""
    return sorted({run.key: run for run in runs}.values(), key=lambda run: run.seed)


def row_stages(
    row: Row, n_bits: int, *, epochs: int | None, fine_tuned: bool = False
) -> tuple[Stage, ...]:
    """How a row is trained at a code length, checked before anything runs."""
    last = row_stage(row, n_bits, epochs=epochs, fine_tuned=fine_tuned)
    if row.after is None:
        return (last,)
    first = row_stage(read_rows()[row.after], n_bits, epochs=epochs, fine_tuned=fine_tuned)
    if last.settings is None or first.settings is None:
        raise InputError(f"row {row.name} goes on from {row.after}; only losses can")
    # The same number of epochs as every other row: half for each of the two.
    in_all = last.settings.epochs
    if in_all < 2:
        raise InputError(f"epochs={in_all}; {row.name} has two stages and needs at least 2")
    halves = (in_all - in_all // 2, in_all // 2)
    return tuple(
        replace(stage, settings=replace(stage.settings, epochs=half))
        for stage, half in zip((first, last), halves, strict=True)
        if stage.settings is not None
    )


def row_stage(row: Row, n_bits: int, *, epochs: int | None, fine_tuned: bool) -> Stage:
    options = dict(row.options)
    if row.margin_of_bits is not None:
        options["margin"] = row.margin_of_bits * n_bits
    if row.method in HASHERS:
        as_method(row.method, options).hasher(n_bits=n_bits, seed=0)
        return Stage(row.method, options, None)
    changes = dict(row.fine_tuning if fine_tuned else row.settings)
    if epochs is not None:
        changes["epochs"] = epochs
    settings = replace((IMAGE_PRESETS if fine_tuned else PRESETS)[row.preset], **changes)
    as_method(row.method, options).loss(
        n_bits=n_bits, n_classes=2, seed=0, reduction=settings.reduction
    )
    return Stage(row.method, options, settings, row.margin_of_bits)


def described(stage: Stage) -> dict[str, Any]:
    """A stage with its method's defaults written out, since they may change too."""
    kind: type = LOSSES.get(stage.method) or HASHERS[stage.method]
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.default is not inspect.Parameter.empty
        and name not in {"n_bits", "random_state", "seed"}
    }
    return {
        "method": stage.method,
        "options": {**defaults, **stage.options},
        "settings": asdict(stage.settings) if stage.settings else None,
    }
