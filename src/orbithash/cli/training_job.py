"""What `orbithash train` was asked to do, and the doing of it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from orbithash.cli.sources import holds_features, image_files
from orbithash.cli.training_progress import fitting_progress, training_progress
from orbithash.errors import InputError
from orbithash.files import resumable_folder, unfinished

if TYPE_CHECKING:  # --help must not wait for torch
    from orbithash.data import ImageFiles, LabelledFeatures
    from orbithash.encoders import FeatureEncoder, ImageEncoder, RunRecord
    from orbithash.networks import PhotoBackbone
    from orbithash.training import Processes, Trained, TrainingSettings


@dataclass(frozen=True)
class Job:
    """A run to be made: what is learned, from what, and how."""

    source: str
    method: str
    n_bits: int
    preset: str
    settings: "TrainingSettings"
    options: Mapping[str, Any]  # of the loss or the hasher
    seed: int
    init: Path | None
    # On images:
    backbone: str | None
    weights: Path | None
    device: str | None
    n_workers: int | None

    def __post_init__(self) -> None:
        given = {
            "--backbone": self.backbone,
            "--weights": self.weights,
            "--device": self.device,
            "--workers": self.n_workers,
        }
        names = [name for name, value in given.items() if value is not None]
        if holds_features(self.source) and names:
            raise InputError(
                f"{names[0]} is for images, and {self.source} holds features; leave it out"
            )


@contextmanager
def folder_of_run(
    out: Path, processes: "Processes", *, resume: bool, force: bool
) -> Iterator[Path]:
    """The folder that all processes work in, made and at last given its name by the first."""
    from orbithash.encoders.runs.run_folder import CHECKPOINT, CONTENTS

    made = resumable_folder(
        out, contents=CONTENTS, checkpoint=CHECKPOINT, resume=resume, force=force
    )
    with ExitStack() as stack:
        wrong = None
        if processes.first:
            try:
                stack.enter_context(made)
            except InputError as error:
                wrong = str(error)
        # The others would wait for a process that has ended.
        if (wrong := processes.gather_objects(wrong)[0]) is not None:
            raise InputError(wrong)
        yield unfinished(out.absolute())


def carry_out(
    job: Job,
    folder: Path,
    processes: "Processes",
    console: Console,
    *,
    checkpoint_every: float,
    tensorboard: Path | None,
) -> "tuple[Trained[Any], int]":
    """Train, and write the run into the folder; also how many images could not be read."""
    from orbithash.encoders import write_run
    from orbithash.encoders.runs.run_folder import CHECKPOINT, LOG, UNREADABLE
    from orbithash.losses import LOSSES
    from orbithash.training import Checkpoints, Interrupted, interruption, log_to
    from orbithash.training.history import tensorboard_to
    from orbithash.training.unreadable_log import UnreadableList

    unreadable = UnreadableList(folder / UNREADABLE, processes)
    with ExitStack() as stack:
        is_loss = job.method in LOSSES
        progress = training_progress if is_loss else fitting_progress
        shown = stack.enter_context(progress(console, job.method, job.settings.epochs))
        watchers = [log_to(folder / LOG)] if processes.first else []
        if processes.first and tensorboard is not None:
            watchers.append(tensorboard_to(tensorboard))
        hooks: dict[str, Any] = {
            "after_epoch": all_of(*watchers, shown.epoch),
            "after_step": shown.step,
            "checkpoints": Checkpoints(
                folder / CHECKPOINT, every=checkpoint_every, processes=processes
            ),
            "processes": processes,
        }
        if is_loss:  # a hasher has no steps to stop between: signals end it as any program
            hooks["stopping"] = stack.enter_context(interruption())
        try:
            trained, record = learn(job, folder, unreadable, hooks)
        except Interrupted:
            console.print("Stopped. To go on, give the same command with --resume.")
            raise
    unreadable.join()
    if processes.first:
        write_run(folder, trained.encoder, record, trained.outcome())
    return trained, len(unreadable.reasons)


def learn(
    job: Job, folder: Path, unreadable: Callable[[str, str], None], hooks: Mapping[str, Any]
) -> "tuple[Trained[Any], RunRecord]":
    """Train on features or on images, whichever the source holds."""
    from orbithash.data import read_features
    from orbithash.encoders import load
    from orbithash.encoders.runs.fingerprints import (
        digest_of_features,
        digest_of_images,
        weights_digest,
    )
    from orbithash.encoders.runs.split_file import keep_split
    from orbithash.evaluation import mean_average_precision

    init = load(job.init) if job.init is not None else None
    common: dict[str, Any] = {
        "score": mean_average_precision,
        "options": job.options,
        "seed": job.seed,
        **hooks,
    }
    if holds_features(job.source):
        features = read_features(Path(job.source))
        record = record_of(
            job,
            digest=digest_of_features(features),
            features_by=weights_digest(features.made_with),
        )
        return train_head(job, features, init, common), record
    images = image_files(job.source)
    backbone, name = backbone_of(job, init)
    if hooks["processes"].first:
        keep_split(images, folder)
    record = record_of(job, digest=digest_of_images(images), backbone=name)
    common["unreadable"] = unreadable
    return fine_tune(job, images, backbone, init, common), record


def train_head(
    job: Job,
    data: "LabelledFeatures",
    init: "FeatureEncoder | ImageEncoder | None",
    common: Mapping[str, Any],
) -> "Trained[FeatureEncoder]":
    from orbithash.encoders import FeatureEncoder
    from orbithash.training import train_on_features

    if not isinstance(init, FeatureEncoder | None):
        raise InputError("the run to start from encodes images, not features; give another")
    return train_on_features(data, job.method, job.n_bits, job.settings, init=init, **common)


def fine_tune(
    job: Job,
    images: "ImageFiles",
    backbone: "PhotoBackbone",
    init: "ImageEncoder | FeatureEncoder | None",
    common: Mapping[str, Any],
) -> "Trained[ImageEncoder]":
    from orbithash.training import train_on_images
    from orbithash.training.environment import keep_freed_memory

    keep_freed_memory()
    return train_on_images(
        images,
        backbone,
        job.method,
        job.n_bits,
        job.settings,
        init=init,
        n_workers=job.n_workers,
        device=job.device or "cpu",
        **common,
    )


def backbone_of(
    job: Job, init: "ImageEncoder | FeatureEncoder | None"
) -> "tuple[PhotoBackbone, str]":
    """The network to fine-tune and its name: of the run to start from, or the one asked for."""
    from orbithash.encoders import ImageEncoder, read_record
    from orbithash.encoders.runs.model_file import name_of
    from orbithash.networks import PhotoBackbone, load_photo_backbone
    from orbithash.training import seeded

    if isinstance(init, ImageEncoder):
        if job.weights is not None:
            raise InputError("--init begins with the weights of its run; leave --weights out")
        backbone = init.network.backbone
        assert isinstance(backbone, PhotoBackbone)
        assert job.init is not None
        theirs = read_record(job.init).backbone or name_of(backbone)
        if job.backbone not in (None, theirs):
            raise InputError(
                f"the run to start from has the backbone {theirs}, not {job.backbone}; "
                "leave --backbone out"
            )
        return backbone, theirs
    if job.backbone is None:
        raise InputError(
            f"{job.source} is not a features file; give --backbone to fine-tune a network on its "
            f"images, or make features with: orbithash features {job.source} --backbone NAME "
            "--weights FILE --out FEATURES.npz"
        )
    with seeded(job.seed):  # what begins from scratch
        backbone = load_photo_backbone(job.backbone, job.weights, to_train=True)
    if job.init is not None:
        check_made_by(backbone, job.init)
    return backbone, job.backbone


def check_made_by(backbone: "PhotoBackbone", run: Path) -> None:
    """Raise if the run's features are known to come from another network: its head knows theirs."""
    from orbithash.encoders import read_record
    from orbithash.encoders.runs.fingerprints import digest_of_weights

    if read_record(run).features_by not in (None, digest_of_weights(backbone)):
        raise InputError(
            f"{run} was trained on features of another network, or of other weights; start from "
            "a run on features of this one"
        )


def record_of(
    job: Job, *, digest: str, backbone: str | None = None, features_by: str | None = None
) -> "RunRecord":
    from orbithash.encoders import RunRecord
    from orbithash.encoders.runs.run_folder import versions

    return RunRecord(
        method=job.method,
        n_bits=job.n_bits,
        seed=job.seed,
        preset=job.preset,
        settings=asdict(job.settings),
        options=job.options,
        source=job.source,
        init=None if job.init is None else str(job.init),
        versions=versions(),
        backbone=backbone,
        weights=None if job.weights is None else str(job.weights),
        data_digest=digest,
        features_by=features_by,
    )


def all_of(*functions: Callable[[Any], None]) -> Callable[[Any], None]:
    def call(value: Any) -> None:
        for function in functions:
            function(value)

    return call
