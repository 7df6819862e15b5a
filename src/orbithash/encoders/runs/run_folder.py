"""The folder that training writes: enough to encode, to resume, and to repeat the run.

model.safetensors   the encoder
run.json            method, bits, seed, settings, source, versions, digest of the encoder's file
log.jsonl           one line per epoch
scores.json         validation figures
split.csv           for images: which of them trained and which are queries
trained_before.json for images, with --init: those that trained the run it started from
unreadable.txt      images that could not be read, with the reason, if there were any

During training it also holds what `--resume` needs: checkpoint.safetensors, the state; features/,
the backbone's features on which a head trains; head-checkpoint.safetensors, the head that is
trained before the whole network.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from orbithash.data import ImageFiles, Split, image_table, training_rows, write_image_table
from orbithash.data.array_files import read_arrays
from orbithash.data.classes import Labelled, seen_split
from orbithash.data.images import Labels
from orbithash.encoders.encoder import Encoder
from orbithash.encoders.runs.model_file import encoder_from_bytes, read_encoder, write_encoder
from orbithash.encoders.runs.record import Epoch, RunRecord, Training
from orbithash.errors import InputError
from orbithash.files import check_regular, output_folder, partial_folder, write_text
from orbithash.index.store.reading import encoder_of_folder, is_index

MODEL, RECORD, LOG, SCORES = "model.safetensors", "run.json", "log.jsonl", "scores.json"
HUB = "hf:"  # begins the address of a run on the Hugging Face Hub
DIGEST = "model_sha256"  # in the record, of the encoder's file
SPLIT, TRAINED_BEFORE = "split.csv", "trained_before.json"
UNREADABLE, CHECKPOINT = "unreadable.txt", "checkpoint.safetensors"
FEATURES, HEAD_CHECKPOINT = "features", "head-checkpoint.safetensors"
UNFINISHED = frozenset({CHECKPOINT, FEATURES, HEAD_CHECKPOINT})  # removed at the end
CONTENTS = frozenset({MODEL, RECORD, LOG, SCORES, SPLIT, TRAINED_BEFORE, UNREADABLE})


def save_run(encoder: Encoder, folder: str | Path, *, force: bool = False) -> None:
    """Write the encoder with its record and log into a new folder; `force` replaces a run."""
    with output_folder(Path(folder), contents=CONTENTS, force=force) as new:
        write_run(encoder, new)
        if encoder.history:
            write = epoch_logger(new / LOG)
            for epoch in encoder.history:
                write(epoch)


def write_run(encoder: Encoder, folder: Path) -> None:
    """Write everything except the log, which training writes epoch by epoch."""
    digest = write_encoder(encoder, folder / MODEL)
    training = encoder.training or Training(RunRecord("unknown", encoder.n_bits))
    record = asdict(training.record) | {DIGEST: digest}
    for name, content in ((RECORD, record), (SCORES, training.scores())):
        write_text(folder / name, json.dumps(content, indent=2) + "\n")


def load_run(folder: str | Path) -> Encoder:
    """Return the encoder of a run, of an index on disk, or of the hub; raise if it is damaged."""
    if str(folder).startswith(HUB):
        from orbithash.encoders.runs.hub import load_from_hub  # which loads the run it downloads

        return load_from_hub(str(folder))
    folder = Path(folder)
    check_is_run(folder)
    if is_index(folder):
        return encoder_from_bytes(encoder_of_folder(folder))
    encoder = read_encoder(folder / MODEL)
    if (folder / RECORD).exists():
        check_digest(folder)
        encoder.training = read_training(folder)
    return encoder


def check_digest(folder: Path) -> None:
    """Raise unless the encoder's file is as it was written; earlier versions kept no digest."""
    recorded = read_values(folder).get(DIGEST)
    with (folder / MODEL).open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if recorded not in (None, digest):
        raise InputError(
            f"{folder / MODEL} is damaged: its checksum is not the one in {RECORD}; restore both "
            "from a copy, or train again"
        )


def read_training(folder: Path) -> Training:
    """Return how a run was trained; a run whose log or scores are missing has no history."""
    record = read_record(folder)
    try:
        history = read_log(folder / LOG) if (folder / LOG).exists() else []
        scores = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return Training(record, tuple(history), float(scores["seconds"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Training(record)


def read_record(folder: Path) -> RunRecord:
    check_is_run(folder)
    values = read_values(folder)
    values.pop(DIGEST, None)
    try:
        held_out = tuple(values.pop("held_out_classes", ()))  # JSON has no tuples
        record = RunRecord(**values, held_out_classes=held_out)
        check_kinds(record)
        return record
    except (ValueError, TypeError, AttributeError) as error:
        raise not_a_run(folder, error) from None


def read_values(folder: Path) -> dict[str, Any]:
    """Return the content of a run's run.json."""
    try:
        return dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise not_a_run(folder, error) from None


def not_a_run(folder: Path, error: Exception) -> InputError:
    return InputError(f"{folder} is not a run ({error}); give a folder that train wrote")


def check_kinds(record: RunRecord) -> None:
    """Raise unless what other code computes with is of the right kind."""
    kinds = {"method": str, "n_bits": int, "seed": int, "source": str}
    kinds |= dict.fromkeys(("settings", "options", "nested", "versions"), dict)
    for name, kind in kinds.items():
        if not isinstance(value := getattr(record, name), kind):
            raise TypeError(f"its {name} is {value!r}")
    if not all(map(str.isdecimal, record.nested)):
        raise ValueError(f"its nested is {record.nested!r}")
    if not all(isinstance(name, str) for name in record.held_out_classes):
        raise TypeError(f"its held_out_classes is {record.held_out_classes!r}")
    float(record.settings.get("validation", 0))


def check_is_run(folder: Path) -> None:
    unfinished = folder.suffix == ".partial" and not (folder / MODEL).exists()
    run = folder.with_suffix("") if unfinished else folder
    if run.is_dir():
        return check_regular(run)
    if partial_folder(run).is_dir():
        raise InputError(
            f"{run} is unfinished: {partial_folder(run)} exists; continue with the same train "
            "command and --resume, or keep the best epoch so far with --finish"
        )
    raise InputError(f"there is no run {folder}; give a folder that train wrote")


def is_finished(folder: Path) -> bool:
    return (folder / RECORD).exists() and not partial_folder(folder).exists()


def epoch_logger(file: Path) -> Callable[[Epoch], None]:
    """Return a function that appends an epoch to a new log, one line of JSON each.

    A resumed run logs its earlier epochs again first, so an old file is removed.
    """
    file.unlink(missing_ok=True)

    def write(epoch: Epoch) -> None:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(asdict(epoch)) + "\n")

    return write


def read_log(file: Path) -> list[Epoch]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Epoch(**json.loads(line)) for line in lines]


logger = logging.getLogger(__name__)


def write_split(images: ImageFiles, run: Path) -> None:
    """Write the images with their split into a run's folder.

    It is left out if the classes have names that a table cannot hold.
    """
    try:
        write_image_table(images, run / SPLIT)
    except InputError as error:
        logger.warning("the split is not kept: %s", error)


def trained_queries(run: Path, images: ImageFiles) -> list[str]:
    """Return the paths of the queries that trained the run, or a run that it started from.

    Images are compared by location.
    """
    trained = read_trained_before(run)
    if (run / SPLIT).exists():
        kept = image_table(run / SPLIT, labelled=False)
        trained.update(locations(kept, kept.split.train))
    elif (run / RECORD).exists():
        trained |= trained_by_features(read_record(run), images)
    queries = images.split.query
    files = zip(queries.tolist(), locations(images, queries), strict=True)
    return [images.paths[row] for row, file in files if file in trained]


def keep_trained_before(
    init: Path, images: ImageFiles, held_out: Int64[np.ndarray, " held_out"], run: Path | None
) -> None:
    """Write which images trained `init` into the folder of a run that starts from it.

    Warn about those that are held out, or queries, in the new run.
    """
    trained = files_that_trained(init, images)
    if run is not None:
        write_trained_before(trained, run)
    if n_held_out := sum(file in trained for file in locations(images, held_out)):
        logger.warning(
            "%d of the %d images held out for validation trained %s, where this run starts: the "
            "validation MAP is too high and may keep the wrong epoch; start from a run that held "
            "out the same images (--validation, --seed), or give --validation 0",
            n_held_out,
            len(held_out),
            init,
        )
    if n_queries := sum(file in trained for file in locations(images, images.split.query)):
        logger.warning(
            "%d of the %d queries trained %s, where this run starts: their scores will be too "
            "high; start from a run on the same split",
            n_queries,
            len(images.split.query),
            init,
        )


def files_that_trained(init: Path, images: ImageFiles) -> set[Path]:
    """Return the locations of the images that trained a run, or a run that it started from.

    Images that a run held out for validation did not train it. A run on features names its images
    by the paths in their file: those of `images` that have these paths are returned. If the file is
    gone, nothing is known of them.
    """
    trained = read_trained_before(init)
    record = read_record(init) if (init / RECORD).exists() else None
    if (init / SPLIT).exists():
        kept = image_table(init / SPLIT, labelled=False)
        trained.update(locations(kept, fitted_rows(kept, kept.split, record)))
    return trained | trained_by_features(record, images)


def trained_by_features(record: RunRecord | None, images: ImageFiles) -> set[Path]:
    """Return the files of the images whose features trained a run."""
    names = features_that_trained(record)
    named = [row for row, path in enumerate(images.paths) if path in names]
    return set(locations(images, np.array(named, dtype=np.int64)))


def fitted_rows(
    data: Labelled, split: Split, record: RunRecord | None
) -> Int64[np.ndarray, " trained"]:
    """Return the training rows without those that the run held out."""
    if record is None:
        return split.train
    if record.held_out_classes:
        split = seen_split(data, split, record.held_out_classes)
    share = float(record.settings.get("validation", 0))
    return training_rows(data.labels, split, share, seed=record.seed)[0]


@dataclass(frozen=True, eq=False)
class LabelsOnly:
    """Labels of a features file whose features are not read."""

    labels: Labels
    classes: tuple[str, ...] | None


def features_that_trained(record: RunRecord | None) -> set[str]:
    """Return the paths of the images whose features trained a run; empty if they are unknown."""
    file = Path(record.source if record else "")
    if file.suffix.lower() != ".npz" or not file.is_file():
        return set()
    try:
        arrays = read_arrays(file, ("train", "labels", "classes", "paths"))
        split = Split(train=arrays["train"].astype(np.int64))
        classes = tuple(arrays["classes"].tolist()) if "classes" in arrays else None
        data = LabelsOnly(arrays["labels"], classes)
        return set(arrays["paths"][fitted_rows(data, split, record)].tolist())
    except (OSError, ValueError, LookupError):
        return set()


def write_trained_before(files: set[Path], run: Path) -> None:
    """Write locations as paths relative to the run's folder, so that they can move together."""
    folder = run.resolve()
    paths = sorted(Path(os.path.relpath(file, folder)).as_posix() for file in files)
    write_text(run / TRAINED_BEFORE, json.dumps(paths, indent=0) + "\n")


def read_trained_before(run: Path) -> set[Path]:
    """Return the locations of the images that trained the runs that this one started from."""
    try:
        paths = json.loads((run / TRAINED_BEFORE).read_text(encoding="utf-8"))
        folder = run.resolve()
        return {Path(os.path.normpath(folder / path)) for path in paths}
    except (OSError, ValueError, TypeError):
        return set()


def locations(images: ImageFiles, rows: Int64[np.ndarray, " rows"]) -> list[Path]:
    """Return where the images of these rows are, the same for all ways to name a folder."""

    @cache  # resolving reads every part of a path from disk
    def real_folder(folder: Path) -> Path:
        return folder.resolve()

    files = (images.file(row) for row in rows.tolist())
    return [real_folder(file.parent) / file.name for file in files]
