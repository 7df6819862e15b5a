"""One run: train, score on the split's queries, and keep everything in a folder of its own.

model.safetensors, run.json, log.jsonl, scores.json    as `orbithash train` writes them
identity.json      all that decides the outcome
evaluation.json    the scores of the queries in the database
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from orbithash.data import LabelledFeatures, read_features
from orbithash.encoders import FeatureEncoder, RunRecord, write_run
from orbithash.encoders.run_folder import LOG, SCORES, versions
from orbithash.errors import InputError
from orbithash.evaluation import Scores, evaluate_codes, mean_average_precision
from orbithash.experiments.plan import Run
from orbithash.training import PRESETS, Epoch, Trained, log_to, train_on_features

RUNS = "runs"
IDENTITY, EVALUATION = "identity.json", "evaluation.json"
PRECISION_AT = (1, 2, 5, 10, 20, 50, *range(100, 1001, 100))

read_once = lru_cache(maxsize=4)(read_features)  # for the many runs on the same features


@dataclass(frozen=True, eq=False)
class Finished:
    """What a table needs of a run."""

    scores: Scores
    seconds: float  # of training


def run_folder(run: Run, out: Path) -> Path:
    return out / RUNS / run.folder()


def find_finished(run: Run, out: Path) -> Finished | None:
    """The outcome of a run that is there already; a folder is whole or has no such name."""
    folder = run_folder(run, out)
    if not folder.is_dir():
        return None
    try:
        scores = Scores.from_json((folder / EVALUATION).read_text(encoding="utf-8"))
        training = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return Finished(scores, float(training["seconds"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"the run {folder} was changed ({error}); remove the folder, and it is run again"
        ) from None


def execute(
    run: Run, out: Path, *, after_epoch: Callable[[Epoch], None] = lambda epoch: None
) -> Finished:
    """Train and score, unless that is done."""
    done = find_finished(run, out)
    if done is not None:
        return done
    data = read_once(run.source.file)
    with whole_run(run_folder(run, out)) as folder:
        trained = learn(run, data, log=log_to(folder / LOG), after_epoch=after_epoch)
        scores = score(trained.encoder, data)
        write_run(folder, trained.encoder, record(run), trained.outcome())
        (folder / IDENTITY).write_text(
            json.dumps(run.identity(), indent=2) + "\n", encoding="utf-8"
        )
        (folder / EVALUATION).write_text(scores.to_json() + "\n", encoding="utf-8")
    return Finished(scores, trained.seconds)


def learn(
    run: Run,
    data: LabelledFeatures,
    *,
    log: Callable[[Epoch], None],
    after_epoch: Callable[[Epoch], None],
) -> Trained[FeatureEncoder]:
    """The stages one after another, as one training: epochs are numbered through."""
    encoder: FeatureEncoder | None = None
    history: list[Epoch] = []
    seconds = 0.0

    def tell(epoch: Epoch) -> None:
        history.append(replace(epoch, number=len(history)))
        log(history[-1])
        after_epoch(history[-1])

    for stage in run.stages:
        trained = train_on_features(
            data,
            stage.method,
            run.n_bits,
            stage.settings or PRESETS[run.preset],
            score=mean_average_precision,
            options=stage.options,
            init=encoder,
            seed=run.seed,
            after_epoch=tell,
        )
        encoder, seconds = trained.encoder, seconds + trained.seconds
    # Only the last stage's epochs could be kept.
    last = history[len(history) - len(trained.history) :]
    return replace(trained, history=tuple(last), seconds=seconds)


def score(encoder: FeatureEncoder, data: LabelledFeatures) -> Scores:
    """Every query against the whole database; nothing is chosen by it."""
    asking, answering = data.split.query, data.split.database
    return evaluate_codes(
        encoder.encode(data.features[asking]),
        encoder.encode(data.features[answering]),
        data.labels[asking],
        data.labels[answering],
        n_bits=encoder.n_bits,
        precision_at=PRECISION_AT,
    )


def record(run: Run) -> RunRecord:
    last = run.stages[-1]
    return RunRecord(
        method=last.method,
        n_bits=run.n_bits,
        seed=run.seed,
        preset=run.preset,
        settings=asdict(last.settings) if last.settings else {},
        options=last.options,
        source=str(run.source.file),
        init=" then ".join(stage.method for stage in run.stages[:-1]) or None,
        versions=versions(),
    )


@contextmanager
def whole_run(folder: Path) -> Iterator[Path]:
    """A folder to work in that takes its name when the block ends well, and only then."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(folder)
    workplace = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    workplace.mkdir()
    try:
        yield workplace
        flush(workplace)
        workplace.rename(folder)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def remove_left_behind(folder: Path) -> None:
    """Remove what killed processes had begun of this run; those that live are left alone."""
    for unfinished in folder.parent.glob(f".{folder.name}.*.unfinished"):
        process = int(unfinished.name.split(".")[-2])
        if process == os.getpid() or not is_alive(process):
            shutil.rmtree(unfinished, ignore_errors=True)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def flush(folder: Path) -> None:
    """Bring every file to disk before the folder gets its name: a power cut must not empty it."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
