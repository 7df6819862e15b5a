"""One run of a table: train its stages, score the split's queries, write a folder.

model.safetensors, run.json, log.jsonl, scores.json    as `orbithash train` writes them
identity.json      everything that determines the scores
evaluation.json    the scores of the queries in the database
codes.npz          the codes that were scored, of queries and database, by row
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orbithash.data import ImageFiles
from orbithash.encoders import FeatureEncoder, ImageEncoder, RunRecord, write_run
from orbithash.encoders.runs.run_folder import LOG, SCORES, versions
from orbithash.errors import InputError
from orbithash.evaluation import Scores, encode_split, evaluate_rows, mean_average_precision
from orbithash.experiments.tables.plan import PlannedRun, Stage
from orbithash.experiments.tables.sources import FineTuning, SourceData, open_source_data
from orbithash.networks import load_photo_backbone
from orbithash.training import (
    PRESETS,
    Checkpoints,
    Epoch,
    Trained,
    log_to,
    seeded,
    train_on_features,
    train_on_images,
)
from orbithash.training.environment import keep_freed_memory

Encoder = FeatureEncoder | ImageEncoder

RUNS = "runs"
IDENTITY, EVALUATION, CODES = "identity.json", "evaluation.json", "codes.npz"
PRECISION_AT = (1, 2, 5, 10, 20, 50, *range(100, 1001, 100))


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The scores of a run, and the duration of its training."""

    scores: Scores
    seconds: float


def execute_run(
    run: PlannedRun, out: Path, *, after_epoch: Callable[[Epoch], None] = lambda epoch: None
) -> FinishedRun:
    """Train and score, unless the run is finished already."""
    done = find_finished(run, out)
    if done is not None:
        return done
    data = open_source_data(run.source, fine_tuned=run.is_fine_tuned)
    folder = run_folder(run, out)
    checkpoints = folder.with_name(f".{folder.name}.checkpoints")
    with whole_run(folder) as workplace:
        trained = train_stages(
            run,
            data,
            checkpoints=checkpoints,
            log=log_to(workplace / LOG),
            after_epoch=after_epoch,
        )
        # The queries are encoded only here; no setting and no epoch is chosen by them.
        encoded = encode_split(trained.encoder, data)
        scores = evaluate_rows(encoded, data, n_bits=run.n_bits, precision_at=PRECISION_AT)
        write_run(workplace, trained.encoder, run_record(run), trained.outcome())
        (workplace / IDENTITY).write_text(
            json.dumps(run.identity(), indent=2) + "\n", encoding="utf-8"
        )
        (workplace / EVALUATION).write_text(scores.to_json() + "\n", encoding="utf-8")
        np.savez(workplace / CODES, ids=encoded.rows, codes=encoded.codes)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return FinishedRun(scores, trained.seconds)


def find_finished(run: PlannedRun, out: Path) -> FinishedRun | None:
    """Read a run that is finished; None if it is not: only complete folders have its name."""
    folder = run_folder(run, out)
    if not folder.is_dir():
        return None
    try:
        scores = Scores.from_json((folder / EVALUATION).read_text(encoding="utf-8"))
        training = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        (folder / CODES).stat()
        return FinishedRun(scores, float(training["seconds"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"the run {folder} was changed ({error}); remove the folder to repeat the run"
        ) from None


def run_folder(run: PlannedRun, out: Path) -> Path:
    return out / RUNS / run.folder()


def train_stages(
    run: PlannedRun,
    data: SourceData,
    *,
    checkpoints: Path,
    log: Callable[[Epoch], None] = lambda epoch: None,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained[Encoder]:
    """Train the stages one after another as one training, with consecutive epoch numbers.

    A network that is fine-tuned writes one file per stage to the folder `checkpoints` and resumes
    from it. Heads on features train too quickly for checkpoints to pay.
    """
    encoder: Encoder | None = None
    history: list[Epoch] = []
    seconds = 0.0

    def renumber(epoch: Epoch) -> None:
        history.append(replace(epoch, number=len(history)))
        log(history[-1])
        after_epoch(history[-1])

    for number, stage in enumerate(run.stages):
        common: dict[str, Any] = {
            "score": mean_average_precision,
            "options": stage.options,
            "init": encoder,
            "seed": run.seed,
            "after_epoch": renumber,
        }
        trained: Trained[Encoder]
        if isinstance(data, ImageFiles):
            assert run.source.fine_tuning is not None
            checkpoints.mkdir(parents=True, exist_ok=True)
            kept = Checkpoints(checkpoints / f"stage-{number}.safetensors")
            trained = fine_tune(
                run, stage, data, run.source.fine_tuning, checkpoints=kept, **common
            )
        else:
            settings = stage.settings or PRESETS[run.preset]
            trained = train_on_features(data, stage.method, run.n_bits, settings, **common)
        encoder, seconds = trained.encoder, seconds + trained.seconds
    # The best epoch can only be one of the last stage.
    last = history[len(history) - len(trained.history) :]
    return replace(trained, history=tuple(last), seconds=seconds)


def fine_tune(
    run: PlannedRun, stage: Stage, images: ImageFiles, fine_tuning: FineTuning, **common: Any
) -> Trained[ImageEncoder]:
    if stage.settings is None:
        raise InputError(f"{stage.method} is fitted to features; it cannot train a network")
    keep_freed_memory()
    network = fine_tuning.network
    with seeded(run.seed):  # parts without pretrained weights are initialised at random
        backbone = load_photo_backbone(network.backbone, network.weights, to_train=True)
    return train_on_images(images, backbone, stage.method, run.n_bits, stage.settings, **common)


def run_record(run: PlannedRun) -> RunRecord:
    last = run.stages[-1]
    source: dict[str, Any] = {"source": str(run.source.file)}
    if run.is_fine_tuned and (fine_tuning := run.source.fine_tuning):
        weights = fine_tuning.network.weights
        source = {
            "source": fine_tuning.location,
            "backbone": fine_tuning.network.backbone,
            "weights": None if weights is None else str(weights),
        }
    return RunRecord(
        method=last.method,
        n_bits=run.n_bits,
        seed=run.seed,
        preset=run.preset,
        settings=asdict(last.settings) if last.settings else {},
        options=last.options,
        init=" then ".join(stage.method for stage in run.stages[:-1]) or None,
        versions=versions(),
        **source,
    )


@contextmanager
def whole_run(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` if the block succeeds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(folder)
    workplace = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    workplace.mkdir()
    try:
        yield workplace
        flush(workplace)
        if not folder.is_dir():  # otherwise another process was faster, with the same results
            workplace.rename(folder)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def remove_left_behind(folder: Path) -> None:
    """Remove the temporary folders of killed processes, not those of running ones."""
    for unfinished in folder.parent.glob(f".{folder.name}.*.unfinished"):
        process = int(unfinished.name.split(".")[-2])
        if process == os.getpid() or not is_alive(process):
            shutil.rmtree(unfinished, ignore_errors=True)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def flush(folder: Path) -> None:
    """Sync every file to disk before the rename: a power cut must not leave empty files."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
