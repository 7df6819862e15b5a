"""From declared tables to runs: one run per row, code length, seed and source."""

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orbithash.codes import check_n_bits
from orbithash.errors import InputError
from orbithash.experiments.tables.sources import TableSource
from orbithash.experiments.tables.spec import FEATURES, RowSpec, TableSpec, read_rows
from orbithash.hashers import HASHERS
from orbithash.losses import LOSSES
from orbithash.losses.nested import length_weights
from orbithash.training import IMAGE_PRESETS, PRESETS, TrainingSettings
from orbithash.training.methods import as_method

# Part of a run's identity. Increment when the same settings train or score differently than
# before, so that a table never mixes old and new runs.
RECIPE = 1
FINE_TUNING_RECIPE = 2  # 2: a new head is fitted to the first batch
# The same for a method alone. 2: class codes beyond Hadamard rows are chosen for their distance.
METHOD_RECIPES = {"csq": 2, "orthohash": 2}

RunKey = tuple[str, str, int, int]  # source, row, n_bits, seed


@dataclass(frozen=True, eq=False)
class Stage:
    """One training: a method, its options, and its settings (None for a hasher)."""

    method: str
    options: Mapping[str, Any]
    settings: TrainingSettings | None
    margin_of_bits: float | None = None  # set if the options' margin was computed from it


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """Stages that are trained one after another, each from the last one's weights, and scored."""

    row: str
    source: TableSource
    n_bits: int
    seed: int
    preset: str
    stages: tuple[Stage, ...]
    nested: tuple[int, ...] = ()  # all lengths of nested codes, of which `n_bits` is one
    held_out: tuple[str, ...] = ()  # classes that do not train

    @property
    def trained_bits(self) -> int:
        """The length of the codes that are trained; `n_bits`, or longer if these are a prefix."""
        return max(self.nested, default=self.n_bits)

    @property
    def prefixes(self) -> tuple[int, ...]:
        """The shorter lengths of nested codes."""
        return tuple(length for length in self.nested if length < self.trained_bits)

    @property
    def is_fine_tuned(self) -> bool:
        """Whether the whole network is trained, not a head or a hasher on its features."""
        return self.source.fine_tuning is not None and self.stages[0].settings is not None

    @property
    def is_floats(self) -> bool:
        """Whether the features themselves are scored: nothing is trained, and there are no codes.

        All code lengths, and all seeds that hold out the same classes, have one run.
        """
        return self.stages[0].method == FEATURES

    @property
    def key(self) -> RunKey:
        return (self.source.name, self.row, self.n_bits, self.seed)

    @property
    def max_epochs(self) -> int:
        """Maximum number of epochs over all stages; 0 for a hasher."""
        return sum(stage.settings.epochs for stage in self.stages if stage.settings)

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the scores; runs of equal identity are not repeated."""
        digest = self.source.digest
        if self.is_fine_tuned and self.source.fine_tuning is not None:
            digest = self.source.fine_tuning.digest
        identity = {
            "recipe": FINE_TUNING_RECIPE if self.is_fine_tuned else RECIPE,
            "data": digest,
            "n_bits": 0 if self.is_floats else self.trained_bits,
            "seed": 0 if self.is_floats else self.seed,
            "stages": [describe_stage(stage) for stage in self.stages],
        }
        # Only where they are set: other runs keep the identity that they had before.
        if self.nested:
            identity["nested"] = length_weights(self.nested)
        if self.held_out:
            identity["held_out_classes"] = list(self.held_out)
        return identity

    def folder(self) -> Path:
        """Return the run's folder, relative to all runs.

        Its name has a digest of the identity: changed settings lead to another folder, so nothing
        is overwritten and runs of earlier settings are found again. All lengths of nested codes
        have one folder.
        """
        text = json.dumps(self.identity(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        if self.is_floats:
            return Path(self.source.name, self.row, f"floats-{digest}")
        bits = f"{self.trained_bits}-bits"
        return Path(self.source.name, self.row, bits, f"seed-{self.seed}-{digest}")

    def __str__(self) -> str:
        return f"{self.row}, {self.n_bits} bits, seed {self.seed}, {self.source.name}"


def plan_runs(
    table: TableSpec,
    sources: Sequence[TableSource],
    *,
    bits: Sequence[int] | None = None,
    seeds: Sequence[int],
    epochs: int | None = None,
) -> list[PlannedRun]:
    """Return the runs of a table, by default at its own code lengths.

    Seeds are the outermost loop: a table that is stopped early has few runs of every method rather
    than all runs of some.
    """
    lengths = tuple(dict.fromkeys(bits or table.bits))
    for n_bits in lengths:
        check_n_bits(n_bits)
    if table.halves:
        sources = [halves for source in sources for halves in source.with_halves()]
    stages = {
        (row.name, n_bits, fine_tuned): row_stages(
            row.spec,
            max(lengths) if row.spec.nested else n_bits,
            epochs=epochs,
            fine_tuned=fine_tuned,
        )
        for row in table.rows
        for n_bits in lengths
        for fine_tuned in {source.fine_tuning is not None for source in sources} or {False}
    }
    return [
        PlannedRun(
            row=row.name,
            source=source,
            n_bits=n_bits,
            seed=seed,
            preset=row.spec.preset,
            stages=stages[row.name, n_bits, source.fine_tuning is not None],
            nested=tuple(sorted(lengths)) if row.spec.nested else (),
            held_out=source.held_out(seed),
        )
        for seed in seeds
        for source in sources
        for n_bits in lengths
        for row in table.rows
    ]


def unique_runs(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Remove repeats: runs that several tables, or all lengths of nested codes, share.

    They are sorted by seed.
    """
    return sorted({run.folder(): run for run in runs}.values(), key=lambda run: run.seed)


def describe_stage(stage: Stage) -> dict[str, Any]:
    """Return a stage's settings with the defaults of its method, since these may change too."""
    defaults = {}
    if stage.method != FEATURES:
        kind: type = LOSSES.get(stage.method) or HASHERS[stage.method]
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(kind).parameters.items()
            if parameter.default is not inspect.Parameter.empty
            and name not in {"n_bits", "random_state", "seed"}
        }
    description: dict[str, Any] = {
        "method": stage.method,
        "options": {**defaults, **stage.options},
        "settings": stage.settings.identity() if stage.settings else None,
    }
    if stage.method in METHOD_RECIPES:
        description["recipe"] = METHOD_RECIPES[stage.method]
    return description


def row_stages(
    row: RowSpec, n_bits: int, *, epochs: int | None, fine_tuned: bool = False
) -> tuple[Stage, ...]:
    """Return the stages of a row at one code length, validated before anything runs."""
    last = row_stage(row, n_bits, epochs=epochs, fine_tuned=fine_tuned)
    if row.after is None:
        return (last,)
    first = row_stage(read_rows()[row.after], n_bits, epochs=epochs, fine_tuned=fine_tuned)
    if last.settings is None or first.settings is None:
        raise InputError(f"row {row.name} continues from {row.after}; only losses can")
    # The same number of epochs as every other row: half for each of the two stages.
    total = last.settings.epochs
    if total < 2:
        raise InputError(f"epochs={total}; {row.name} has two stages and needs at least 2")
    halves = (total - total // 2, total // 2)
    return tuple(
        replace(stage, settings=replace(stage.settings, epochs=half))
        for stage, half in zip((first, last), halves, strict=True)
        if stage.settings is not None
    )


def row_stage(row: RowSpec, n_bits: int, *, epochs: int | None, fine_tuned: bool) -> Stage:
    if row.method == FEATURES:
        return Stage(FEATURES, {}, None)
    options = dict(row.options)
    if row.margin_of_bits is not None:
        options["margin"] = row.margin_of_bits * n_bits
    # Constructed only to validate the options.
    if row.method in HASHERS:
        as_method(row.method, options).hasher(n_bits=n_bits, seed=0)
        return Stage(row.method, options, None)
    # Methods are compared with the head of layers, unless a row says otherwise.
    changes = {"head": "layers", **(row.fine_tuning if fine_tuned else row.settings)}
    if epochs is not None:
        changes["epochs"] = epochs
    settings = replace((IMAGE_PRESETS if fine_tuned else PRESETS)[row.preset], **changes)
    as_method(row.method, options).loss(
        n_bits=n_bits, n_classes=2, seed=0, reduction=settings.reduction
    )
    return Stage(row.method, options, settings, row.margin_of_bits)
