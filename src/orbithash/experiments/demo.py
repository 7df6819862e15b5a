"""From training to a report on digits that come with the install: train, encode, search, score.

The comparison is fair by construction. All methods learn from the same training images. The deep
ones share the network, its initial weights, the batches and the number of epochs; for each, margin
and learning rate are chosen by the same trials, on the validation images and from all seeds. Every
method runs from the same seeds, and the queries are searched only at the end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from orbithash.data import DATASETS, LabelledFeatures
from orbithash.encoders import Encoder
from orbithash.encoders.runs.record import package_versions
from orbithash.errors import InputError
from orbithash.evaluation import Scores, evaluate_codes
from orbithash.experiments.comparison import Comparison, Outcome
from orbithash.experiments.report.demo_report import write_report
from orbithash.experiments.trials import Trial, best_trial, run_trial
from orbithash.hashers import HASHERS
from orbithash.index import ENGINES, Neighbours
from orbithash.training import Hooks, TrainingSettings, train
from orbithash.training.machine.environment import one_thread

DEEP_METHODS = ("order-aware", "triplet")
BACKBONE = "small-cnn"
SETTINGS = TrainingSettings(
    epochs=35, batch_size=100, images_per_class=10, weight_decay=0.1, hidden=0
)
MARGINS = (1 / 16, 1 / 8)  # as shares of the bits; an eighth is the losses' default
LEARNING_RATES = (0.003, 0.01)
NEIGHBOURS = 10
PRECISION_AT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

Progress = Callable[[str, int, int], None]  # stage, steps done, steps in all


def run_demo(
    folder: Path,
    *,
    seed: int = 0,
    n_bits: Sequence[int] = (16, 32),
    n_runs: int = 3,
    epochs: int = SETTINGS.epochs,
    margins: Sequence[float] = MARGINS,
    learning_rates: Sequence[float] = LEARNING_RATES,
    progress: Progress = lambda stage, done, total: None,
) -> Comparison:
    """Compare all methods on handwritten digits; write `codes/`, `scores.json`, `report.html`."""
    started = time.perf_counter()
    digits = DATASETS["digits"](seed)
    assert isinstance(digits, LabelledFeatures)
    seeds = range(seed, seed + n_runs)
    candidates = [
        (margin, replace(SETTINGS, epochs=epochs, validate_every=epochs, learning_rate=rate))
        for margin in margins
        for rate in learning_rates
    ]
    with one_thread():
        trials = train_networks(digits, n_bits, candidates, seeds, progress)
        codes = {case: codes_of(best_trial(tried), digits) for case, tried in trials.items()}
        shallow, skipped = fit_hashers(digits, n_bits, seeds, progress)
        outcomes = score_all(folder / "codes", digits, codes | shallow, trials, progress)
    comparison = Comparison(
        dataset=digits,
        outcomes=tuple(outcomes),
        skipped=tuple(skipped),
        settings={
            "seed": seed,
            "n_bits": list(n_bits),
            "runs": n_runs,
            "epochs": epochs,
            "images_per_class": SETTINGS.images_per_class,
            "margins": list(margins),
            "learning_rates": list(learning_rates),
        },
        versions=package_versions(),
    )
    progress("Write the report", 0, 1)
    (folder / "scores.json").write_text(comparison.to_json(), encoding="utf-8")
    write_report(folder / "report.html", comparison, seconds=time.perf_counter() - started)
    progress("Write the report", 1, 1)
    return comparison


def train_networks(
    digits: LabelledFeatures,
    lengths: Sequence[int],
    candidates: Sequence[tuple[float, TrainingSettings]],
    seeds: Sequence[int],
    progress: Progress,
) -> dict[tuple[str, int], list[Trial]]:
    """Train each deep method at each code length with every candidate from every seed."""
    cases = [(method, n_bits) for method in DEEP_METHODS for n_bits in lengths]
    images = as_images(digits)
    total = len(cases) * len(seeds) * sum(settings.epochs for _, settings in candidates)
    steps = count(1)
    hooks = Hooks(after_epoch=lambda epoch: progress("Train networks", next(steps), total))
    return {
        (method, n_bits): [
            run_trial(
                images,
                method,
                n_bits,
                settings,
                {"margin": margin * n_bits},
                seeds=seeds,
                backbone=BACKBONE,
                hooks=hooks,
            )
            for margin, settings in candidates
        ]
        for method, n_bits in cases
    }


def fit_hashers(
    digits: LabelledFeatures, lengths: Sequence[int], seeds: Sequence[int], progress: Progress
) -> tuple[dict[tuple[str, int], list[UInt8[np.ndarray, "n bytes"]]], list[str]]:
    """Return the codes of each run of each shallow method, and the methods that failed."""
    cases = [(method, n_bits) for method in HASHERS for n_bits in lengths]
    codes, skipped = {}, []
    for done, (method, n_bits) in enumerate(cases):
        progress("Fit shallow methods", done, len(cases))
        try:
            codes[method, n_bits] = [
                encode(train(digits, n_bits, method=method, seed=seed, progress=False), digits)
                for seed in seeds
            ]
        except InputError as error:  # some cannot give more bits than there are pixels
            skipped.append(f"{method} at {n_bits} bits: {error}")
    progress("Fit shallow methods", len(cases), len(cases))
    return codes, skipped


def score_all(
    folder: Path,
    digits: LabelledFeatures,
    codes: dict[tuple[str, int], list[UInt8[np.ndarray, "n bytes"]]],
    trials: dict[tuple[str, int], list[Trial]],
    progress: Progress,
) -> Iterator[Outcome]:
    """Score every method, store the codes of its first run, and search them."""
    folder.mkdir()
    for done, ((method, n_bits), runs) in enumerate(codes.items()):
        progress("Store, search and score", done, len(codes))
        file = folder / f"{method}-{n_bits}-bits.npz"
        store_codes(file, digits, runs[0], n_bits)
        yield Outcome(
            method=method,
            kind="deep" if method in DEEP_METHODS else "shallow",
            n_bits=n_bits,
            runs=tuple(score(digits, run, n_bits) for run in runs),
            neighbours=search_codes(file, runs[0][digits.split.query]),
            trials=tuple(trial_values(trial) for trial in trials.get((method, n_bits), ())),
        )
    progress("Store, search and score", len(codes), len(codes))


def trial_values(trial: Trial) -> dict[str, Any]:
    return {
        "margin": trial.options["margin"],
        "learning_rate": trial.settings.learning_rate,
        "epochs": trial.settings.epochs,
        "images_per_class": trial.settings.images_per_class,
        "backbone": BACKBONE,
        "map": trial.map,
    }


def as_images(digits: LabelledFeatures) -> LabelledFeatures:
    """Return the digits as images (n, 1, 8, 8) rather than as rows of pixels."""
    return replace(digits, features=digits.features.reshape(-1, 1, 8, 8))


def codes_of(trial: Trial, digits: LabelledFeatures) -> list[UInt8[np.ndarray, "n bytes"]]:
    return [encode(encoder, as_images(digits)) for encoder in trial.encoders]


def encode(encoder: Encoder, digits: LabelledFeatures) -> UInt8[np.ndarray, "n bytes"]:
    return encoder.encode(digits.features)


def score(digits: LabelledFeatures, codes: UInt8[np.ndarray, "n bytes"], n_bits: int) -> Scores:
    """Score every query against the whole database."""
    query, database, labels = digits.split.query, digits.split.database, digits.labels
    return evaluate_codes(
        codes[query],
        codes[database],
        labels[query],
        labels[database],
        n_bits=n_bits,
        precision_at=PRECISION_AT,
    )


def store_codes(
    file: Path, digits: LabelledFeatures, codes: UInt8[np.ndarray, "n bytes"], n_bits: int
) -> None:
    """Write the database's codes, with the images' row numbers as ids."""
    database = digits.split.database
    np.savez(file, ids=database, codes=codes[database], n_bits=n_bits)


def search_codes(file: Path, queries: UInt8[np.ndarray, "queries bytes"]) -> Neighbours:
    """Search the codes of a file that `store_codes` wrote."""
    with np.load(file) as stored:
        engine = ENGINES["exact"](int(stored["n_bits"]))
        engine.add(stored["ids"], stored["codes"])
    return engine.search(queries, NEIGHBOURS)
