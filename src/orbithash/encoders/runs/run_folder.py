"""The folder that training writes: enough to encode, to resume, and to repeat the run.

model.safetensors   the encoder
run.json            method, bits, seed, settings, source, versions
log.jsonl           one line per epoch
scores.json         validation figures
split.csv           for images: which of them trained and which are queries
unreadable.txt      images that could not be read, with the reason, if there were any

During training it also holds what `--resume` needs: checkpoint.safetensors, the state; features/,
the backbone's features on which a head trains; head.safetensors and head-checkpoint.safetensors,
the head that is trained before the whole network.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

from orbithash.data import ImageFiles, image_table, write_image_table
from orbithash.encoders.encoder import Encoder
from orbithash.encoders.runs.model_file import read_encoder, write_encoder
from orbithash.encoders.runs.record import Epoch, RunRecord, Training
from orbithash.errors import InputError
from orbithash.files import output_folder, partial_folder

MODEL, RECORD, LOG, SCORES = "model.safetensors", "run.json", "log.jsonl", "scores.json"
SPLIT, UNREADABLE, CHECKPOINT = "split.csv", "unreadable.txt", "checkpoint.safetensors"
FEATURES, HEAD, HEAD_CHECKPOINT = "features", "head.safetensors", "head-checkpoint.safetensors"
UNFINISHED = frozenset({CHECKPOINT, FEATURES, HEAD, HEAD_CHECKPOINT})  # removed at the end
CONTENTS = frozenset({MODEL, RECORD, LOG, SCORES, SPLIT, UNREADABLE})


def save_run(encoder: Encoder, folder: str | Path) -> None:
    """Write the encoder with its record and log into a new folder."""
    with output_folder(Path(folder), contents=CONTENTS, force=False) as new:
        write_run(encoder, new)
        if encoder.history:
            write = epoch_logger(new / LOG)
            for epoch in encoder.history:
                write(epoch)


def write_run(encoder: Encoder, folder: Path) -> None:
    """Write everything except the log, which training writes epoch by epoch."""
    write_encoder(encoder, folder / MODEL)
    training = encoder.training or Training(RunRecord("unknown", encoder.n_bits))
    for name, content in ((RECORD, asdict(training.record)), (SCORES, training.scores())):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_run(folder: str | Path) -> Encoder:
    """Return the encoder of a run, or of an index on disk."""
    folder = Path(folder)
    check_is_run(folder)
    encoder = read_encoder(folder / MODEL)
    if (folder / RECORD).exists():
        encoder.training = read_training(folder)
    return encoder


def read_training(folder: Path) -> Training:
    """Return how a run was trained; a run whose log or scores are missing has no history."""
    record = read_record(folder)
    try:
        history = read_log(folder / LOG) if (folder / LOG).exists() else []
        scores = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return Training(record, tuple(history), float(scores["seconds"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Training(record)


def read_record(folder: Path) -> RunRecord:
    check_is_run(folder)
    try:
        return RunRecord(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{folder} is not a run ({error}); give a folder that train wrote"
        ) from None


def check_is_run(folder: Path) -> None:
    unfinished = folder.suffix == ".partial" and not (folder / MODEL).exists()
    run = folder.with_suffix("") if unfinished else folder
    if run.is_dir():
        return
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
    """Return the paths of the queries that trained the run; images are compared by location."""
    if not (run / SPLIT).exists():
        return []
    run_images = image_table(run / SPLIT)

    @cache  # resolving reads every part of a path from disk
    def real_folder(folder: Path) -> Path:
        return folder.resolve()

    def location(file: Path) -> Path:
        return real_folder(file.parent) / file.name

    trained = {location(run_images.file(row)) for row in run_images.split.train.tolist()}
    queries = images.split.query.tolist()
    return [images.paths[row] for row in queries if location(images.file(row)) in trained]
