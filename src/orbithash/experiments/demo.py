"""From training to a report on digits that come with the install: train, encode, search, score.

The comparison is fair by construction. All methods learn from the same training images and may use
the same views of them. The deep ones share the network, its initial weights, the batches and the
number of epochs; for each, margin and learning rate are chosen by the same trials. Shallow ones try
whether the views help as further rows. All choices are made on the validation images. Every method
runs from the same seeds, and the queries are searched only at the end.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from orbithash.data import DATASETS, LabelledFeatures, Views
from orbithash.data.augmentation import warped
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.encoders.runs.record import package_versions
from orbithash.errors import InputError
from orbithash.evaluation import Scores, evaluate_codes
from orbithash.experiments.comparison import Comparison, Outcome
from orbithash.experiments.report.demo_report import write_report
from orbithash.experiments.trials import Trial, best_trial, run_trial
from orbithash.hashers import HASHERS
from orbithash.index import ENGINES, Metadata, Neighbours
from orbithash.networks import HashingNetwork
from orbithash.retrieval import open_index
from orbithash.training import Hooks, TrainingSettings, train
from orbithash.training.machine.environment import one_thread

DEEP_METHODS = ("order-aware", "triplet")
TRIVIAL = "predicted-class"  # not a rival: it finds classes alone
BACKBONE = "small-cnn"
SETTINGS = TrainingSettings(
    epochs=100, batch_size=100, images_per_class=10, weight_decay=0.1, hidden=0
)
TRIAL_EPOCHS = 40
LEARNING_RATES = (0.001, 0.005, 0.03)  # tried with the losses' default margin
MARGIN = 1 / 8  # that default, as a share of the bits
MARGINS = (0.02, 0.05, 0.3)  # tried next, with the best of the learning rates
N_VIEWS = 40  # of each training image, for networks
N_ROWS = 9  # of these views as further rows, for shallow methods
# With the further rows: its default of 500 anchors is enough for the 400 training images only.
SHALLOW_OPTIONS: dict[str, dict[str, Any]] = {"sdh": {"n_anchors": 2000}}
NEIGHBOURS = 10
PRECISION_AT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
IMAGE_SCALE = 8  # the files of the digits have 64 × 64 pixels

Case = tuple[str, int]  # a method and its number of bits
Progress = Callable[[str, int, int], None]  # stage, steps done, steps in all


@dataclass(frozen=True, eq=False)
class Fitted:
    """The encoders of a method at one code length, and the trials that chose its settings."""

    encoders: tuple[FeatureEncoder, ...]  # one of each seed
    codes: tuple[UInt8[np.ndarray, "n bytes"], ...]  # of all images, by each encoder
    map: float  # on the validation images, mean over the seeds
    trials: tuple[Mapping[str, Any], ...]


def run_demo(
    folder: Path,
    *,
    final: Path | None = None,
    seed: int = 0,
    n_bits: Sequence[int] = (16, 32),
    n_runs: int = 3,
    epochs: int = SETTINGS.epochs,
    trial_epochs: int = TRIAL_EPOCHS,
    margins: Sequence[float] = MARGINS,
    learning_rates: Sequence[float] = LEARNING_RATES,
    progress: Progress = lambda stage, done, total: None,
) -> Comparison:
    """Compare all methods on handwritten digits, and write a report and an index.

    Writes `report.html`, `scores.json`, `codes/`, the digits as `images/`, and `digits.orbit`, an
    index of them. `final` is the name that the folder will have, for the paths in the index.
    """
    started = time.perf_counter()
    digits = DATASETS["digits"](seed)
    assert isinstance(digits, LabelledFeatures)
    seeds = range(seed, seed + n_runs)
    with one_thread():
        deep = train_networks(
            as_images(digits, N_VIEWS, seed=seed),
            n_bits,
            seeds,
            replace(SETTINGS, epochs=epochs),
            trial_epochs,
            margins,
            learning_rates,
            progress,
        )
        shallow, skipped = fit_hashers(digits, n_bits, seeds, progress)
        fitted = deep | shallow
        outcomes = tuple(score_all(folder / "codes", digits, fitted, progress))
    indexed = max((case for case in deep if case[1] == max(n_bits)), key=lambda c: deep[c].map)
    comparison = Comparison(
        dataset=digits,
        outcomes=outcomes,
        skipped=tuple(skipped),
        settings={
            "seed": seed,
            "n_bits": list(n_bits),
            "runs": n_runs,
            "epochs": epochs,
            "trial_epochs": trial_epochs,
            "images_per_class": SETTINGS.images_per_class,
            "margins": sorted({MARGIN, *margins}),
            "learning_rates": list(learning_rates),
            "views": N_VIEWS,
            "views_as_rows": N_ROWS,
            "options_with_rows": SHALLOW_OPTIONS,
            "index": {"method": indexed[0], "n_bits": indexed[1]},
        },
        versions=package_versions(),
    )
    progress("Write report and index", 0, 1)
    write_index(folder, final or folder, digits, deep[indexed])
    (folder / "scores.json").write_text(comparison.to_json(), encoding="utf-8")
    write_report(folder / "report.html", comparison, seconds=time.perf_counter() - started)
    progress("Write report and index", 1, 1)
    return comparison


def train_networks(
    images: LabelledFeatures,
    lengths: Sequence[int],
    seeds: Sequence[int],
    settings: TrainingSettings,
    trial_epochs: int,
    margins: Sequence[float],
    learning_rates: Sequence[float],
    progress: Progress,
) -> dict[Case, Fitted]:
    """Train each deep method at each code length, with the settings that its trials chose.

    Trials are short and have the first seed only: first all learning rates with the default
    margin, then the other margins with the best rate.
    """
    cases = [(method, n_bits) for method in DEEP_METHODS for n_bits in lengths]
    n_trials = len(learning_rates) + len(margins)
    total = len(cases) * (n_trials * trial_epochs + len(seeds) * settings.epochs)
    steps = count(1)
    hooks = Hooks(after_epoch=lambda epoch: progress("Train networks", next(steps), total))

    def run(case: Case, margin: float, rate: float, epochs: int, seeds: Sequence[int]) -> Trial:
        method, n_bits = case
        return run_trial(
            images,
            method,
            n_bits,
            replace(settings, epochs=epochs, validate_every=epochs, learning_rate=rate),
            {"margin": margin * n_bits},
            seeds=seeds,
            backbone=BACKBONE,
            hooks=hooks,
        )

    def chosen(case: Case) -> Fitted:
        trials = [run(case, MARGIN, rate, trial_epochs, seeds[:1]) for rate in learning_rates]
        rate = best_trial(trials).settings.learning_rate
        trials += [run(case, margin, rate, trial_epochs, seeds[:1]) for margin in margins]
        best = best_trial(trials)
        margin = best.options["margin"] / case[1]
        trained = run(case, margin, best.settings.learning_rate, settings.epochs, seeds)
        return fitted(
            trained.encoders, images, trained.map, [trial_values(trial) for trial in trials]
        )

    return {case: chosen(case) for case in cases}


def fit_hashers(
    digits: LabelledFeatures, lengths: Sequence[int], seeds: Sequence[int], progress: Progress
) -> tuple[dict[Case, Fitted], list[str]]:
    """Fit each shallow method at each code length; also return the methods that failed.

    A trial with the first seed chooses between the training images alone and with views of them.
    """
    methods = [method for method in HASHERS if method != TRIVIAL]
    cases = [(method, n_bits) for method in methods for n_bits in lengths]
    sources = {0: digits, N_ROWS: with_rows(digits, N_ROWS, seed=seeds[0])}
    found, skipped = {}, []
    for done, (method, n_bits) in enumerate(cases):
        progress("Fit shallow methods", done, len(cases))

        def fit(views: int, seed: int, method: str = method, n_bits: int = n_bits) -> Any:
            options = SHALLOW_OPTIONS.get(method) if views else None
            return train(
                sources[views], n_bits, method=method, options=options, seed=seed, progress=False
            )

        try:
            tried = {views: fit(views, seeds[0]) for views in sources}
            scores = {views: validation_map(encoder, digits) for views, encoder in tried.items()}
            best = max(scores, key=lambda views: scores[views])
            encoders = [tried[best], *(fit(best, seed) for seed in seeds[1:])]
        except InputError as error:  # some cannot give more bits than there are pixels
            skipped.append(f"{method} at {n_bits} bits: {error}")
            continue
        found[method, n_bits] = fitted(
            encoders,
            digits,
            float(np.mean([validation_map(encoder, digits) for encoder in encoders])),
            [{"views": views, "map": score} for views, score in scores.items()],
        )
    progress("Fit shallow methods", len(cases), len(cases))
    return found, skipped


def fitted(
    encoders: Sequence[Any],
    data: LabelledFeatures,
    validation: float,
    trials: Sequence[Mapping[str, Any]],
) -> Fitted:
    codes = tuple(encoder.encode(data.features) for encoder in encoders)
    return Fitted(tuple(encoders), codes, validation, tuple(trials))


def score_all(
    folder: Path, digits: LabelledFeatures, fitted: Mapping[Case, Fitted], progress: Progress
) -> Iterator[Outcome]:
    """Score every method, store the codes of its first run, and search them."""
    folder.mkdir()
    for done, ((method, n_bits), found) in enumerate(fitted.items()):
        progress("Store, search and score", done, len(fitted))
        file = folder / f"{method}-{n_bits}-bits.npz"
        store_codes(file, digits, found.codes[0], n_bits)
        yield Outcome(
            method=method,
            kind="deep" if method in DEEP_METHODS else "shallow",
            n_bits=n_bits,
            runs=tuple(score(digits, codes, n_bits) for codes in found.codes),
            neighbours=search_codes(file, found.codes[0][digits.split.query]),
            trials=found.trials,
        )
    progress("Store, search and score", len(fitted), len(fitted))


def trial_values(trial: Trial) -> dict[str, Any]:
    return {
        "margin": trial.options["margin"],
        "learning_rate": trial.settings.learning_rate,
        "epochs": trial.settings.epochs,
        "images_per_class": trial.settings.images_per_class,
        "backbone": BACKBONE,
        "map": trial.map,
    }


def as_images(digits: LabelledFeatures, n_views: int = 0, *, seed: int = 0) -> LabelledFeatures:
    """Return the digits as RGB images (n, 3, 8, 8), black on white, with views of those to train.

    The pixels are those of the image files, so the network encodes files too.
    """
    images = replace(digits, features=as_pixels(digits.features))
    if n_views == 0:
        return images
    views = training_views(digits, n_views, seed=seed)
    return replace(images, views=Views(as_pixels(views.features), views.of))


def with_rows(digits: LabelledFeatures, n_views: int, *, seed: int) -> LabelledFeatures:
    """Return the digits with views of the training images as further rows to train on."""
    views = training_views(digits, n_views, seed=seed)
    train = np.concatenate([digits.split.train, len(digits) + np.arange(len(views.of))])
    return replace(
        digits,
        features=np.concatenate([digits.features, views.features]),
        labels=np.concatenate([digits.labels, digits.labels[views.of]]),
        split=replace(digits.split, train=train),
    )


def training_views(digits: LabelledFeatures, n_views: int, *, seed: int) -> Views:
    """Return views of the training images: slightly rotated, scaled, sheared and shifted."""
    rows = np.repeat(digits.split.train, n_views)
    ink = digits.features[rows].reshape(-1, 8, 8)
    views = warped(ink, np.random.default_rng(seed))
    return Views(views.reshape(len(rows), 64), rows)


def as_pixels(ink: Float32[np.ndarray, "n 64"]) -> Float32[np.ndarray, "n 3 8 8"]:
    """Return rows of ink in [0, 1] as whole numbers 0 to 255, from black to white."""
    grey = np.rint(255 * (1 - ink)).astype(np.float32)
    return np.repeat(grey.reshape(-1, 1, 8, 8), 3, axis=1)


def validation_map(encoder: Any, digits: LabelledFeatures) -> float:
    """Return the MAP of the validation images, searched in the training images."""
    split, labels = digits.split, digits.labels
    codes = encoder.encode(digits.features)
    return evaluate_codes(
        codes[split.validation],
        codes[split.train],
        labels[split.validation],
        labels[split.train],
        n_bits=encoder.n_bits,
    ).map


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


def write_index(folder: Path, final: Path, digits: LabelledFeatures, network: Fitted) -> None:
    """Write the digits as image files, and an index of the database's with the network."""
    paths = write_images(folder / "images", digits)
    encoder = network.encoders[0].network
    assert isinstance(encoder, HashingNetwork)
    assert digits.classes is not None
    database = digits.split.database
    with open_index(
        folder / "digits.orbit", encoder=ImageEncoder(encoder.backbone, encoder.head)
    ) as index:
        source = final.absolute() / "images"
        items = [
            Metadata(str(source / paths[row]), (digits.classes[digits.labels[row]],), str(source))
            for row in database.tolist()
        ]
        index.add(database, network.codes[0][database], items)


def write_images(folder: Path, digits: LabelledFeatures) -> dict[int, str]:
    """Write every digit as a file, by part of the split and class; return their names by row."""
    assert digits.classes is not None
    pixels = as_pixels(digits.features)[:, 0].astype(np.uint8)
    names = {}
    for part, rows in (("database", digits.split.database), ("queries", digits.split.query)):
        for name in digits.classes:
            (folder / part / name).mkdir(parents=True)
        for row in rows.tolist():
            names[row] = f"{part}/{digits.classes[digits.labels[row]]}/{row:04}.png"
            enlarged = np.kron(pixels[row], np.ones((IMAGE_SCALE, IMAGE_SCALE), np.uint8))
            Image.fromarray(enlarged).save(folder / names[row])
    return names
