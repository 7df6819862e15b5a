"""One run of a table: train its stages, score the split's queries, write a folder.

model.safetensors, run.json, log.jsonl, scores.json    as `orbithash train` writes them
identity.json      everything that determines the scores
evaluation.json    the scores of the queries in the database
codes.npz          the codes that were scored, of queries and database, by row

A run that scores the features themselves has no model, no log and no codes.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orbithash.data import LabelledFeatures
from orbithash.encoders import Encoder, Epoch, FeatureEncoder, RunRecord, Training
from orbithash.encoders.runs.record import package_versions
from orbithash.encoders.runs.run_folder import (
    LOG,
    RECORD,
    SCORES,
    epoch_logger,
    load_run,
    write_run,
)
from orbithash.errors import InputError
from orbithash.evaluation import (
    REPORTED,
    Scores,
    encode_split,
    evaluate_features,
    evaluate_rows,
)
from orbithash.experiments.tables.plan import PlannedRun
from orbithash.experiments.tables.sources import SourceData, nearest_once, open_source_data
from orbithash.files import whole_folder
from orbithash.losses.nested import length_weights
from orbithash.networks import FeatureHead
from orbithash.training import PRESETS, Hooks, train
from orbithash.training.machine.environment import keep_freed_memory

RUNS = "runs"
IDENTITY, EVALUATION, CODES = "identity.json", "evaluation.json", "codes.npz"
UNSEEN = "unseen in unseen"  # the part of the transfer that tables rank
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
    try:
        with whole_folder(folder) as workplace:
            if run.is_floats:
                scores, seconds = score_floats(run, data, workplace)
            else:
                log = epoch_logger(workplace / LOG)
                encoder = layers_alone(run, out, log) or train_stages(
                    run, data, checkpoints=checkpoints, log=log, after_epoch=after_epoch
                )
                scores, seconds = score_encoder(run, encoder, data, workplace)
            check_held_out(run, scores)
            write_json(workplace / IDENTITY, run.identity())
            (workplace / EVALUATION).write_text(scores.to_json() + "\n", encoding="utf-8")
    except FileExistsError:  # another process was faster, with the same results
        done = find_finished(run, out)
        assert done is not None
        return done
    shutil.rmtree(checkpoints, ignore_errors=True)
    return FinishedRun(scores_at(run, scores), seconds)


def layers_alone(run: PlannedRun, out: Path, log: Callable[[Epoch], None]) -> Encoder | None:
    """Return the layers of a finished run that only differs by its second path, if there is one.

    A second path is fitted once the layers are trained, so both runs train the same layers.
    """
    other = run.with_second_path()
    if other is None or find_finished(other, out) is None:
        return None
    encoder = load_run(run_folder(other, out))
    if not isinstance(encoder, FeatureEncoder) or not isinstance(encoder.network, FeatureHead):
        return None
    encoder.network.second_path = None
    assert encoder.training is not None
    for epoch in encoder.history:
        log(epoch)
    encoder.training = replace(encoder.training, record=run_record(run))
    return encoder


def score_encoder(
    run: PlannedRun, encoder: Encoder, data: SourceData, folder: Path
) -> tuple[Scores, float]:
    """Write the run and its codes; return the scores, and the seconds of training."""
    # The queries are encoded only here; no setting and no epoch is chosen by them.
    encoded = encode_split(encoder, data)
    # A network that is trained as a whole has features of its own, so their look says nothing.
    features = None if run.is_fine_tuned else run.source.file
    scores = evaluate_rows(
        encoded,
        data,
        precision_at=PRECISION_AT,
        prefixes=run.prefixes,
        unseen=run.held_out,
        nearest=nearest_once(features) if features else None,
        **REPORTED,
    )
    write_run(encoder, folder)
    np.savez(folder / CODES, ids=encoded.rows, codes=encoded.codes)
    assert encoder.training is not None
    return scores, encoder.training.seconds


def score_floats(run: PlannedRun, data: SourceData, folder: Path) -> tuple[Scores, float]:
    """Score the features themselves, and write what a run without an encoder has."""
    assert isinstance(data, LabelledFeatures)
    scores = evaluate_features(data, unseen=run.held_out)
    training = Training(run_record(run))
    write_json(folder / RECORD, asdict(training.record))
    write_json(folder / SCORES, training.scores())
    return scores, training.seconds


def check_held_out(run: PlannedRun, scores: Scores) -> None:
    """Raise unless queries of held-out classes have been scored."""
    if run.held_out and UNSEEN not in scores.transfer:
        raise InputError(
            f"{run.source.name} has no query of a held-out class with a related image of these "
            "classes in the database; give a source whose queries are of all classes"
        )


def write_json(file: Path, values: Any) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def find_finished(run: PlannedRun, out: Path) -> FinishedRun | None:
    """Read a run that is finished; None if it is not: only complete folders have its name."""
    folder = run_folder(run, out)
    if not folder.is_dir():
        return None
    try:
        scores = Scores.from_json((folder / EVALUATION).read_text(encoding="utf-8"))
        training = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        if not run.is_floats:
            (folder / CODES).stat()
        return FinishedRun(scores_at(run, scores), float(training["seconds"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"the run {folder} was changed ({error}); remove the folder to repeat the run"
        ) from None


def scores_at(run: PlannedRun, scores: Scores) -> Scores:
    """Return the scores at the run's code length, which may be that of a prefix."""
    return scores.prefixes[run.n_bits] if run.n_bits in run.prefixes else scores


def run_folder(run: PlannedRun, out: Path) -> Path:
    return out / RUNS / run.folder()


def train_stages(
    run: PlannedRun,
    data: SourceData,
    *,
    checkpoints: Path,
    log: Callable[[Epoch], None] = lambda epoch: None,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Encoder:
    """Train the stages one after another as one training, with consecutive epoch numbers.

    Each stage of a network that is fine-tuned is a run in the folder `checkpoints`, and resumes
    from there. Heads on features train too quickly for checkpoints to pay.
    """
    encoder: Encoder | None = None
    history: list[Epoch] = []
    seconds = 0.0

    def renumber(epoch: Epoch) -> None:
        history.append(replace(epoch, number=len(history)))
        log(history[-1])
        after_epoch(history[-1])

    fine_tuning = run.source.fine_tuning if run.is_fine_tuned else None
    network = fine_tuning.network if fine_tuning else None
    for number, stage in enumerate(run.stages):
        before = len(history)
        if network is not None:
            keep_freed_memory()
        encoder = train(
            data,
            run.trained_bits,
            method=stage.method,
            options=stage.options,
            nested=run.prefixes,
            hold_out_classes=run.held_out or None,
            backbone=network.backbone if network and encoder is None else None,
            weights=network.weights if network and encoder is None else None,
            preset=run.preset,
            settings=stage.settings or PRESETS[run.preset],
            init=encoder,
            tune="whole" if network else None,
            seed=run.seed,
            out=checkpoints / f"stage-{number}" if network else None,
            resume=True,
            hooks=Hooks(after_epoch=renumber),
            progress=False,
        )
        if len(history) == before:  # the stage was finished earlier
            for epoch in encoder.history:
                renumber(epoch)
        assert encoder.training is not None
        seconds += encoder.training.seconds
    assert encoder is not None
    # The best epoch can only be one of the last stage.
    last = tuple(history[len(history) - len(encoder.history) :])
    encoder.training = Training(run_record(run), last, seconds)
    return encoder


def run_record(run: PlannedRun) -> RunRecord:
    last = run.stages[-1]
    record = RunRecord(
        method=last.method,
        n_bits=run.trained_bits,
        nested={str(n): weight for n, weight in length_weights(run.nested).items()},
        seed=run.seed,
        preset=run.preset,
        settings=asdict(last.settings) if last.settings else {},
        options=last.options,
        source=str(run.source.file),
        init=" then ".join(stage.method for stage in run.stages[:-1]) or None,
        versions=package_versions(),
        held_out_classes=run.held_out,
    )
    if not run.is_fine_tuned or run.source.fine_tuning is None:
        return record
    network = run.source.fine_tuning.network
    return replace(
        record,
        source=run.source.fine_tuning.location,
        backbone=network.backbone,
        weights=None if network.weights is None else str(network.weights),
    )
