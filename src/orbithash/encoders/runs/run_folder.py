"""The folder that training writes: enough to encode, to go on, and to repeat.

model.safetensors   the encoder
run.json            method, bits, seed, settings, what it was trained on, versions
log.jsonl           one line per epoch
scores.json         what validation gave
split.csv           of a run on images, which of them trained and which are queries
unreadable.txt      images that could not be read, with the reason, if there were any

While training goes on, checkpoint.safetensors holds all that it needs to be taken up again.
"""

import json
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runs.model_file import read_encoder, write_encoder
from orbithash.errors import InputError
from orbithash.index import Index, open_index
from orbithash.index.addresses import remote_place
from orbithash.networks.backbones import check_device


MODEL, RECORD, LOG, SCORES = "model.safetensors", "run.json", "log.jsonl", "scores.json"
SPLIT, UNREADABLE, CHECKPOINT = "split.csv", "unreadable.txt", "checkpoint.safetensors"
CONTENTS = frozenset({MODEL, RECORD, LOG, SCORES, SPLIT, UNREADABLE})


@dataclass(frozen=True)
class RunRecord:
    """What made a run: with the same data and versions, the same again."""

    method: str
    n_bits: int
    seed: int
    preset: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any]  # of the loss or the hasher, where not its defaults
    source: str
    init: str | None
    versions: Mapping[str, str]
    backbone: str | None = None  # of an encoder of images
    weights: str | None = None  # that the backbone began with
    data_digest: str | None = None  # of the images or features with labels and split
    features_by: str | None = None  # digest of the weights that made the features, where known


def versions() -> dict[str, str]:
    packages = ("orbithash", "numpy", "scikit-learn", "scipy", "numba", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def write_run(
    folder: Path,
    encoder: FeatureEncoder | ImageEncoder,
    record: RunRecord,
    scores: Mapping[str, Any],
) -> None:
    """Write everything but the log, which was written while training went on."""
    write_encoder(encoder, folder / MODEL)
    for name, content in ((RECORD, asdict(record)), (SCORES, dict(scores))):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_record(run: Path) -> RunRecord:
    """How a run was made."""
    check_is_there(run)
    try:
        return RunRecord(**json.loads((run / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{run} is not a run ({error}); give a folder that train wrote") from None


def load(run: str | Path, *, device: str = "cpu") -> FeatureEncoder | ImageEncoder:
    """The encoder of a run, or of an index, ready to encode; that of images on any device."""
    check_device(device)
    encoder = read(run)
    if isinstance(encoder, ImageEncoder):
        encoder.network.to(device)
    elif device != "cpu":
        raise InputError(f"{run} encodes features, which is done on cpu; {device} is for images")
    return encoder


def read(run: str | Path) -> FeatureEncoder | ImageEncoder:
    if remote_place(run) is not None:
        with open_index(run) as index:
            return encoder_of(index)
    check_is_there(Path(run))
    return read_encoder(Path(run) / MODEL)


def check_is_there(run: Path) -> None:
    if not run.is_dir():
        raise InputError(f"there is no run {run}; give a folder that train wrote")


def encoder_of(index: Index) -> FeatureEncoder | ImageEncoder:
    """The encoder whose codes an index holds, ready to encode."""
    content = index.encoder()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        file.write_bytes(content)
        return read_encoder(file)
