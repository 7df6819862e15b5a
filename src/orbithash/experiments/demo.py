"""The whole way on images that come with the install: train, encode, store, search, score, report.

The comparison is fair by construction. All methods learn from the same training images. The deep
ones share the network, its random start, the batches and the number of epochs; for each, margin
and learning rate are chosen by the same trials, on the validation images and from all seeds. Every
method is run from the same seeds, and the queries are asked only at the end.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from orbithash.data import LabelledImages
from orbithash.data.benchmarks.digits import read_digits
from orbithash.errors import InputError
from orbithash.evaluation import Scores, evaluate_codes
from orbithash.experiments.choosing import Trial, best_trial, grid, run_trials
from orbithash.experiments.encoding import DeepSettings, shallow_codes
from orbithash.experiments.outcome import Comparison, Outcome
from orbithash.experiments.report.demo_report import write_report
from orbithash.hashers import HASHERS
from orbithash.index import ENGINES, Neighbours

DEEP_METHODS = ("order-aware", "triplet")
NEIGHBOURS = 10
PRECISION_AT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

Progress = Callable[[str, int, int], None]  # what is being done, steps done, steps in all


@dataclass(frozen=True)
class DemoSettings:
    """The demo's defaults; tests make them smaller."""

    seed: int = 0
    n_bits: tuple[int, ...] = (16, 32)
    runs: int = 3  # each from a seed of its own, for every method
    epochs: int = 35
    images_per_class: int = 20  # in every batch, of each of the ten digits
    # An eighth of the bits is the losses' own default.
    margins: tuple[float, ...] = (1 / 16, 1 / 8)  # as shares of the bits
    learning_rates: tuple[float, ...] = (0.003, 0.01)

    def seeds(self) -> range:
        return range(self.seed, self.seed + self.runs)


def run_demo(
    folder: Path,
    settings: DemoSettings | None = None,
    *,
    progress: Progress = lambda stage, done, total: None,
) -> Comparison:
    """Compare all methods on handwritten digits; write `codes/`, `scores.json`, `report.html`."""
    settings = settings or DemoSettings()
    started = time.perf_counter()
    dataset = read_digits(settings.seed)
    comparison = compare(folder / "codes", dataset, settings, progress=progress)
    progress("Write the report", 0, 1)
    (folder / "scores.json").write_text(comparison.to_json(), encoding="utf-8")
    write_report(folder / "report.html", comparison, seconds=time.perf_counter() - started)
    progress("Write the report", 1, 1)
    return comparison


def compare(
    codes_folder: Path, dataset: LabelledImages, settings: DemoSettings, *, progress: Progress
) -> Comparison:
    """Run every method at every code length, and store the codes of each first run."""
    trials = train_networks(dataset, settings, progress)
    codes = {case: list(best_trial(tried).codes) for case, tried in trials.items()}
    shallow, skipped = fit_hashers(dataset, settings, progress)
    codes |= shallow

    codes_folder.mkdir()
    outcomes = []
    for done, ((method, n_bits), runs) in enumerate(codes.items()):
        progress("Store, search and score", done, len(codes))
        file = codes_folder / f"{method}-{n_bits}-bits.npz"
        store_codes(file, dataset, runs[0], n_bits)
        outcomes.append(
            Outcome(
                method=method,
                kind="deep" if method in DEEP_METHODS else "shallow",
                n_bits=n_bits,
                runs=tuple(score(dataset, run, n_bits) for run in runs),
                neighbours=search_codes(file, runs[0][dataset.split.query]),
                trials=trials.get((method, n_bits), ()),
            )
        )
    progress("Store, search and score", len(codes), len(codes))
    return Comparison(
        dataset=dataset,
        outcomes=tuple(outcomes),
        skipped=tuple(skipped),
        settings=asdict(settings),
        versions={
            "Python": platform.python_version(),
            **{name: version(name) for name in ("orbithash", "numpy", "scikit-learn", "torch")},
        },
    )


def train_networks(
    dataset: LabelledImages, settings: DemoSettings, progress: Progress
) -> dict[tuple[str, int], tuple[Trial, ...]]:
    """Each deep method at each code length, trained with every candidate from every seed."""
    cases = [(method, n_bits) for method in DEEP_METHODS for n_bits in settings.n_bits]
    n_candidates = len(settings.margins) * len(settings.learning_rates)
    total = len(cases) * n_candidates * settings.runs * settings.epochs
    steps = count(1)
    base = DeepSettings(0.0, 0.0, settings.epochs, settings.images_per_class)
    return {
        (method, n_bits): run_trials(
            dataset,
            method,
            n_bits,
            grid(
                base,
                margins=[share * n_bits for share in settings.margins],
                learning_rates=settings.learning_rates,
            ),
            seeds=settings.seeds(),
            after_epoch=lambda epoch: progress("Train networks", next(steps), total),
        )
        for method, n_bits in cases
    }


def fit_hashers(
    dataset: LabelledImages, settings: DemoSettings, progress: Progress
) -> tuple[dict[tuple[str, int], list[UInt8[np.ndarray, "n bytes"]]], list[str]]:
    """The codes of each run of each shallow method, and which could not be run."""
    cases = [(method, n_bits) for method in HASHERS for n_bits in settings.n_bits]
    codes, skipped = {}, []
    for done, (method, n_bits) in enumerate(cases):
        progress("Fit shallow methods", done, len(cases))
        try:
            codes[method, n_bits] = [
                shallow_codes(dataset, method, n_bits, seed=seed) for seed in settings.seeds()
            ]
        except InputError as error:  # more bits than 64 pixels can give, for some
            skipped.append(f"{method} at {n_bits} bits: {error}")
    progress("Fit shallow methods", len(cases), len(cases))
    return codes, skipped


def score(dataset: LabelledImages, codes: UInt8[np.ndarray, "n bytes"], n_bits: int) -> Scores:
    """Every query against the whole database."""
    asking, answering = dataset.split.query, dataset.split.database
    labels = dataset.labels
    return evaluate_codes(
        codes[asking],
        codes[answering],
        labels[asking],
        labels[answering],
        n_bits=n_bits,
        precision_at=PRECISION_AT,
    )


def store_codes(
    file: Path, dataset: LabelledImages, codes: UInt8[np.ndarray, "n bytes"], n_bits: int
) -> None:
    """Write the database's codes under the images' row numbers."""
    database = dataset.split.database
    np.savez(file, ids=database, codes=codes[database], n_bits=n_bits)


def search_codes(file: Path, queries: UInt8[np.ndarray, "queries bytes"]) -> Neighbours:
    """Search the codes of a file that `store_codes` wrote."""
    with np.load(file) as stored:
        engine = ENGINES["exact"](int(stored["n_bits"]))
        engine.add(stored["ids"], stored["codes"])
    return engine.search(queries, NEIGHBOURS)
