"""Which settings a search may try for a method."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbithash.losses import LOSSES
from orbithash.training import PRESETS

if TYPE_CHECKING:
    import optuna
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

from orbithash.codes import check_n_bits
from orbithash.data import LabelledFeatures
from orbithash.errors import DivergedError, InputError, MissingExtraError
from orbithash.evaluation import mean_average_precision
from orbithash.experiments.tables.plan import RECIPE, Stage, described
from orbithash.experiments.tables.sources import Source
from orbithash.files import whole_file
from orbithash.training import train_on_features
from orbithash.training.settings import as_toml


@dataclass(frozen=True)
class Numbers:
    """Numbers from lowest to highest; whole ones if these are whole."""

    lowest: int | float
    highest: int | float
    default: int | float
    log: bool = True  # drawn evenly over their logarithm

    def draw(self, trial: "optuna.Trial", name: str) -> int | float:
        if isinstance(self.lowest, int) and isinstance(self.highest, int):
            return trial.suggest_int(name, self.lowest, self.highest, log=self.log)
        return trial.suggest_float(name, self.lowest, self.highest, log=self.log)

    def __str__(self) -> str:
        return f"{self.lowest:g} to {self.highest:g}"


@dataclass(frozen=True)
class Names:
    """One of several names."""

    choices: tuple[str, ...]
    default: str

    def draw(self, trial: "optuna.Trial", name: str) -> str:
        chosen: str = trial.suggest_categorical(name, self.choices)
        return chosen

    def __str__(self) -> str:
        return ", ".join(self.choices)


Space = Mapping[str, Numbers | Names]


def space_of(method: str, *, epochs: int) -> Space:
    """The settings that make a difference to this loss; `epochs` are the most it may take."""
    parameters = inspect.signature(LOSSES[method]).parameters
    base = PRESETS["default"]
    space: dict[str, Numbers | Names] = {}
    usual: float | None = getattr(LOSSES[method], "margin_of_bits", None)
    if usual is not None:  # else there is none, or it has nothing to do with bits
        space["margin_of_bits"] = Numbers(usual / 8, usual * 4, default=usual)
    rate = base.learning_rate
    space["learning_rate"] = Numbers(rate / 10, rate * 10, default=rate)
    if "reduction" in parameters:
        has_weights = "weighting" in parameters
        reductions = ("active", "anchor", "mean") + (("weight",) if has_weights else ())
        space["reduction"] = Names(reductions, default=parameters["reduction"].default)
    space["dropout"] = Numbers(0.0, 0.7, default=base.dropout, log=False)
    space["epochs"] = Numbers(max(1, epochs // 5), epochs, default=min(epochs, base.epochs))
    return space


def draw(trial: "optuna.Trial", space: Space) -> dict[str, Any]:
    """The values that a trial is to have."""
    return {name: dimension.draw(trial, name) for name, dimension in space.items()}


def default_values(space: Space) -> dict[str, Any]:
    return {name: dimension.default for name, dimension in space.items()}


JOURNAL, BEST, TRIALS = "journal.log", "best.toml", "trials.json"
SETTINGS = ("learning_rate", "reduction", "dropout", "epochs")  # of TrainingSettings


@dataclass(frozen=True, eq=False)
class Search:
    """What is searched, and on what; two searches that differ in any of it share no trials."""

    method: str
    n_bits: int
    sources: tuple[Source, ...]
    seeds: tuple[int, ...] = (0,)
    validation: float = 0.2  # share of the training rows held out
    epochs: int = PRESETS["default"].epochs  # the most that a trial may take

    def space(self) -> Space:
        return space_of(self.method, epochs=self.epochs)

    def searched(self) -> dict[str, str]:
        """Each setting that is searched for, with its range in words."""
        return {name: str(dimension) for name, dimension in self.space().items()}

    def identity(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "n_bits": self.n_bits,
            "sources": {source.name: source.digest for source in self.sources},
            "seeds": list(self.seeds),
            "validation": self.validation,
            "epochs": self.epochs,
            "space": self.searched(),
            "defaults": described(Stage(self.method, {}, PRESETS["default"])),
            "recipe": RECIPE,
        }


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and the MAP that each source's validation rows gave."""

    number: int
    values: Mapping[str, Any]
    maps: Mapping[str, float]

    @property
    def map(self) -> float:
        return mean(self.maps.values())


def tune(
    search: Search,
    data: Sequence[LabelledFeatures],
    folder: Path,
    *,
    n_trials: int,
    after_trial: Callable[[list[Trial]], None] = lambda trials: None,
) -> list[Trial]:
    """Try settings until there are so many trials; `folder` has the best after each."""
    check_search(search)
    space = search.space()
    study = open_study(search, folder)
    while len(trials := finished_trials(study)) < n_trials:
        if not trials:
            study.enqueue_trial(default_values(space))  # what is chosen is no worse than these
        asked = study.ask()
        values = draw(asked, space)
        maps = {
            source.name: validation_map(search, of_source, values)
            for source, of_source in zip(search.sources, data, strict=True)
        }
        asked.set_user_attr("maps", maps)
        study.tell(asked, mean(maps.values()))
        trials = finished_trials(study)
        write_trials(search, trials, folder)
        after_trial(trials)
    return trials


def check_search(search: Search) -> None:
    check_n_bits(search.n_bits)
    if search.method not in LOSSES:
        raise InputError(
            f"{search.method!r} is not a loss; settings of training can be searched for "
            f"{', '.join(LOSSES)}"
        )
    if not 0 < search.validation < 1:
        raise InputError(f"validation={search.validation}; hold out a share between 0 and 1")


def open_study(search: Search, folder: Path) -> "optuna.Study":
    """The study in a folder, begun or taken up."""
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
    made_for = study.user_attrs.get("search")
    if made_for is not None and made_for != search.identity():
        changed = [name for name, value in search.identity().items() if made_for.get(name) != value]
        raise InputError(
            f"{folder} holds a search with another {changed[0]}; give --out another name, or the "
            "same arguments to go on with it"
        )
    study.set_user_attr("search", search.identity())
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # its process was stopped
    # A sampler that began with the same numbers again would ask for the same settings again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    return study


def finished_trials(study: "optuna.Study") -> list[Trial]:
    return [
        Trial(trial.number, dict(trial.params), trial.user_attrs["maps"])
        for trial in study.get_trials(deepcopy=False)
        if trial.state.name == "COMPLETE"
    ]


def validation_map(search: Search, data: LabelledFeatures, values: Mapping[str, Any]) -> float:
    """Train on a part of the training rows from every seed; the rest asks after the last epoch."""
    settings = replace(
        PRESETS["default"],
        **{name: values[name] for name in SETTINGS if name in values},
        validation=search.validation,
        validate_every=values["epochs"],  # only the last: what training on all rows will keep
    )
    options = {}
    if "margin_of_bits" in values:
        options["margin"] = values["margin_of_bits"] * search.n_bits
    maps = []
    for seed in search.seeds:
        try:
            trained = train_on_features(
                data,
                search.method,
                search.n_bits,
                settings,
                score=mean_average_precision,
                options=options,
                seed=seed,
            )
        except DivergedError:
            maps.append(0.0)  # worse than any; the search goes on
            continue
        last = trained.history[-1].validation_map
        if last is None:
            raise InputError("no training row could be held out; every class needs three or more")
        maps.append(last)
    return mean(maps)


def best_of(trials: Sequence[Trial]) -> Trial:
    """The trial with the highest mean MAP; the first of equals."""
    return max(trials, key=lambda trial: trial.map)


def write_trials(search: Search, trials: Sequence[Trial], folder: Path) -> None:
    """Write the best settings and all trials, in place of earlier ones."""
    everything = {
        "search": search.identity(),
        "searched": search.searched(),
        "trials": [asdict(trial) | {"map": trial.map} for trial in trials],
    }
    for name, text in (
        (BEST, best_settings(search, trials)),
        (TRIALS, json.dumps(everything, indent=2) + "\n"),
    ):
        with whole_file(folder / name) as file:
            file.write(text.encode())


def best_settings(search: Search, trials: Sequence[Trial]) -> str:
    """The best trial as a file for `orbithash train --settings`, with how it was found."""
    best = best_of(trials)
    values: dict[str, Any] = {"method": search.method}
    if "margin_of_bits" in best.values:
        values["margin_of_bits"] = best.values["margin_of_bits"]
    values["settings"] = {name: best.values[name] for name in SETTINGS if name in best.values}
    # The fields of a row in tuning.toml.
    values["search"] = {
        "trials": len(trials),
        "searched": search.searched(),
        "validation_map": dict(best.maps),
        "note": f"At {search.n_bits} bits, {search.validation:.0%} of the training rows held out, "
        f"mean over {len(search.seeds)} seeds.",
    }
    return (
        f"# The best of {len(trials)} trials at {search.n_bits} bits: mean validation MAP "
        f"{best.map:.4f}.\n# orbithash train SOURCE --method {search.method} --settings THIS\n"
        + as_toml(values)
    )
