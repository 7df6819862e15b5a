"""Search for settings of training with Optuna, scored on held-out training rows."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from orbithash.codes import check_n_bits
from orbithash.data import LabelledFeatures
from orbithash.errors import InputError, MissingExtraError
from orbithash.experiments.tables.plan import RECIPE, Stage, describe_stage
from orbithash.experiments.tables.sources import TableSource
from orbithash.experiments.trials import run_trial
from orbithash.files import whole_file
from orbithash.losses import LOSSES
from orbithash.training import PRESETS
from orbithash.training.settings import as_toml

if TYPE_CHECKING:  # an extra
    import optuna

JOURNAL, BEST, TRIALS = "journal.log", "best.toml", "trials.json"
SETTINGS = ("learning_rate", "reduction", "dropout", "epochs")  # fields of TrainingSettings


@dataclass(frozen=True)
class NumberRange:
    """Numbers from lowest to highest; integers if both are."""

    lowest: int | float
    highest: int | float
    default: int | float
    log: bool = True  # sampled uniformly in the log domain

    def suggest(self, trial: "optuna.Trial", name: str) -> int | float:
        if isinstance(self.lowest, int) and isinstance(self.highest, int):
            return trial.suggest_int(name, self.lowest, self.highest, log=self.log)
        return trial.suggest_float(name, self.lowest, self.highest, log=self.log)

    def __str__(self) -> str:
        return f"{self.lowest:g} to {self.highest:g}"


@dataclass(frozen=True)
class Categories:
    """One of several names."""

    choices: tuple[str, ...]
    default: str

    def suggest(self, trial: "optuna.Trial", name: str) -> str:
        choice: str = trial.suggest_categorical(name, self.choices)
        return choice

    def __str__(self) -> str:
        return ", ".join(self.choices)


SearchSpace = Mapping[str, NumberRange | Categories]


@dataclass(frozen=True, eq=False)
class SettingsSearch:
    """What is tuned, and on which data; searches that differ in any field share no trials."""

    method: str
    n_bits: int
    sources: tuple[TableSource, ...]
    seeds: tuple[int, ...] = (0,)
    validation: float = 0.2  # share of the training rows that is held out
    epochs: int = PRESETS["default"].epochs  # maximum of a trial

    def space(self) -> SearchSpace:
        return search_space(self.method, epochs=self.epochs)

    def ranges(self) -> dict[str, str]:
        """Return the range of every setting that is searched, as text."""
        return {name: str(dimension) for name, dimension in self.space().items()}

    def identity(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "n_bits": self.n_bits,
            "sources": {source.name: source.digest for source in self.sources},
            "seeds": list(self.seeds),
            "validation": self.validation,
            "epochs": self.epochs,
            "space": self.ranges(),
            "defaults": describe_stage(Stage(self.method, {}, PRESETS["default"])),
            "recipe": RECIPE,
        }


@dataclass(frozen=True)
class TuningTrial:
    """One trial: its settings, and the validation MAP on each source."""

    number: int
    values: Mapping[str, Any]
    maps: Mapping[str, float]

    @property
    def map(self) -> float:
        return mean(self.maps.values())


def search_settings(
    search: SettingsSearch,
    data: Sequence[LabelledFeatures],
    folder: Path,
    *,
    n_trials: int,
    after_trial: Callable[[list[TuningTrial]], None] = lambda trials: None,
) -> list[TuningTrial]:
    """Run trials until `folder` holds `n_trials`; write the best settings after each."""
    check_search(search)
    space = search.space()
    study = open_study(search, folder)
    while len(trials := finished_trials(study)) < n_trials:
        if not trials:
            study.enqueue_trial(default_values(space))  # so that the best is no worse than these
        trial = study.ask()
        values = {name: dimension.suggest(trial, name) for name, dimension in space.items()}
        maps = {
            source.name: validation_map(search, source_data, values)
            for source, source_data in zip(search.sources, data, strict=True)
        }
        trial.set_user_attr("maps", maps)
        study.tell(trial, mean(maps.values()))
        trials = finished_trials(study)
        write_trials(search, trials, folder)
        after_trial(trials)
    return trials


def best_tuning_trial(trials: Sequence[TuningTrial]) -> TuningTrial:
    """Return the trial with the highest mean MAP; the first if several have it."""
    return max(trials, key=lambda trial: trial.map)


def search_space(method: str, *, epochs: int) -> SearchSpace:
    """Return the settings that affect this loss; `epochs` is the maximum of a trial."""
    parameters = inspect.signature(LOSSES[method]).parameters
    base = PRESETS["default"]
    space: dict[str, NumberRange | Categories] = {}
    margin: float | None = getattr(LOSSES[method], "margin_of_bits", None)
    if margin is not None:  # otherwise the loss has no margin, or one that is no share of the bits
        space["margin_of_bits"] = NumberRange(margin / 8, margin * 4, default=margin)
    rate = base.learning_rate
    space["learning_rate"] = NumberRange(rate / 10, rate * 10, default=rate)
    if "reduction" in parameters:
        has_weights = "weighting" in parameters
        reductions = ("active", "anchor", "mean") + (("weight",) if has_weights else ())
        space["reduction"] = Categories(reductions, default=parameters["reduction"].default)
    space["dropout"] = NumberRange(0.0, 0.7, default=base.dropout, log=False)
    space["epochs"] = NumberRange(max(1, epochs // 5), epochs, default=min(epochs, base.epochs))
    return space


def default_values(space: SearchSpace) -> dict[str, Any]:
    return {name: dimension.default for name, dimension in space.items()}


def check_search(search: SettingsSearch) -> None:
    check_n_bits(search.n_bits)
    if search.method not in LOSSES:
        raise InputError(
            f"{search.method!r} is not a loss; settings of training can be searched for "
            f"{', '.join(LOSSES)}"
        )
    if not 0 < search.validation < 1:
        raise InputError(f"validation={search.validation}; hold out a share between 0 and 1")


def open_study(search: SettingsSearch, folder: Path) -> "optuna.Study":
    """Open the study in a folder; create it if there is none."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise MissingExtraError("tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / JOURNAL))),
        study_name="settings",
        direction="maximize",
        load_if_exists=True,
    )
    identity, stored = search.identity(), study.user_attrs.get("search")
    if stored is not None and stored != identity:
        changed = [name for name, value in identity.items() if stored.get(name) != value]
        raise InputError(
            f"{folder} holds a search with another {changed[0]}; give --out another name, or the "
            "same arguments to resume it"
        )
    study.set_user_attr("search", identity)
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # its process was stopped
    # With the same seed after a restart, the sampler would suggest the same settings again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    return study


def finished_trials(study: "optuna.Study") -> list[TuningTrial]:
    return [
        TuningTrial(trial.number, dict(trial.params), trial.user_attrs["maps"])
        for trial in study.get_trials(deepcopy=False)
        if trial.state.name == "COMPLETE"
    ]


def validation_map(
    search: SettingsSearch, data: LabelledFeatures, values: Mapping[str, Any]
) -> float:
    """Train from every seed, and average the MAP of the held-out rows after the last epoch."""
    settings = replace(
        PRESETS["default"],
        **{name: values[name] for name in SETTINGS if name in values},
        validation=search.validation,
        validate_every=values["epochs"],  # the last only: training on all rows keeps it too
    )
    options = {}
    if "margin_of_bits" in values:
        options["margin"] = values["margin_of_bits"] * search.n_bits
    return run_trial(data, search.method, search.n_bits, settings, options, seeds=search.seeds).map


def write_trials(search: SettingsSearch, trials: Sequence[TuningTrial], folder: Path) -> None:
    """Write the best settings and all trials, in place of earlier ones."""
    listing = {
        "search": search.identity(),
        "searched": search.ranges(),
        "trials": [asdict(trial) | {"map": trial.map} for trial in trials],
    }
    for name, text in (
        (BEST, best_settings(search, trials)),
        (TRIALS, json.dumps(listing, indent=2) + "\n"),
    ):
        with whole_file(folder / name) as file:
            file.write(text.encode())


def best_settings(search: SettingsSearch, trials: Sequence[TuningTrial]) -> str:
    """Return the best trial as TOML for `orbithash train --settings`, with how it was found."""
    best = best_tuning_trial(trials)
    values: dict[str, Any] = {"method": search.method}
    if "margin_of_bits" in best.values:
        values["margin_of_bits"] = best.values["margin_of_bits"]
    values["settings"] = {name: best.values[name] for name in SETTINGS if name in best.values}
    # The fields of a `TuningRecord`, to be copied into tuning.toml.
    values["search"] = {
        "trials": len(trials),
        "searched": search.ranges(),
        "validation_map": dict(best.maps),
        "note": f"At {search.n_bits} bits, {search.validation:.0%} of the training rows held out, "
        f"mean over {len(search.seeds)} seeds.",
    }
    return (
        f"# The best of {len(trials)} trials at {search.n_bits} bits: mean validation MAP "
        f"{best.map:.4f}.\n# orbithash train SOURCE --method {search.method} --settings THIS\n"
        + as_toml(values)
    )
