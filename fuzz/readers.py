"""What is fuzzed: one reader for each kind of bytes that comes from outside.

A reader takes any bytes. It returns, or raises a `HashingError`. Any other exception is a fault;
so are many seconds or gigabytes. `seeds` returns intact content to start from.
"""

import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from PIL import Image
from safetensors.numpy import save

from orbithash.data.code_batches import open_codes
from orbithash.data.codes_file import read_codes
from orbithash.data.features import read_features, read_vectors
from orbithash.data.table import image_table
from orbithash.data.transforms import decode_rgb
from orbithash.encoders import FeatureEncoder
from orbithash.encoders.runs.model_file import encoder_from_bytes, encoder_to_bytes
from orbithash.encoders.runs.run_folder import load_run
from orbithash.errors import HashingError
from orbithash.hashers import HASHERS
from orbithash.index import Metadata
from orbithash.index.addresses import create_index, open_folder
from orbithash.index.store.stored_index import StoredIndex
from orbithash.metrics.scores import Scores
from orbithash.networks import FeatureHead
from orbithash.training.checkpoint import read as read_checkpoint

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))


def image(content: bytes) -> None:
    decode_rgb(io.BytesIO(content), at_least=32, max_pixels=1_000_000)


def arrays(content: bytes) -> None:
    file = written(content, "features.npz")
    for read in (read_features, read_vectors, read_codes, all_codes):
        accepted(lambda read=read: read(file))


def array(content: bytes) -> None:
    """The content is that of an array in an intact archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for name in ("features", "labels", "train", "codes", "n_bits", "paths", "classes"):
            opened.writestr(f"{name}.npy", content)
    arrays(archive.getvalue())


def all_codes(file: Path) -> None:
    for _ in open_codes(file).batches():
        pass


def csv(content: bytes) -> None:
    image_table(written(content, "images.csv"))


def parquet(content: bytes) -> None:
    image_table(written(content, "images.parquet"))


def model(content: bytes) -> None:
    encoder_from_bytes(content)


def description(content: bytes) -> None:
    """The content is the description of an encoder, beside arrays that are intact."""
    text = content.decode("utf-8", "replace")
    encoder_from_bytes(save(HEAD.model()[1], metadata={"orbithash": text}))


def checkpoint(content: bytes) -> None:
    read_checkpoint(written(content, "checkpoint.safetensors"))


def record(content: bytes) -> None:
    run = FOLDER / "run"
    if not run.exists():
        HEAD.save(run)
    for name in ("run.json", "log.jsonl", "scores.json"):
        (run / name).write_bytes(content)
        accepted(lambda: load_run(run))


def scores(content: bytes) -> None:
    Scores.from_json(content.decode("utf-8", "replace"))


def database(content: bytes) -> None:
    search_with("index.sqlite", content)


def segment(content: bytes) -> None:
    search_with(next(intact_index().glob("*.segment")).name, content)


def search_with(name: str, content: bytes) -> None:
    """Open and search an index one of whose files has this content."""
    damaged = FOLDER / "damaged.orbit"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(intact_index(), damaged)
    (damaged / name).write_bytes(content)
    with open_folder(damaged, "fuzz") as opened:
        opened.search(np.zeros((1, 2), np.uint8), 5)
        opened.known("photos")


@cache
def intact_index() -> Path:
    folder = FOLDER / "intact.orbit"
    with create_index(folder, 16) as index:
        assert isinstance(index, StoredIndex)
        index.add_codes(40, [np.arange(80, dtype=np.uint8).reshape(40, 2)])
        items = [Metadata(f"{i}.jpg", ("a", "b"), "photos", "1") for i in range(5)]
        index.add(None, np.zeros((5, 2), np.uint8), items)
    return folder


def accepted(read: Callable[[], object]) -> None:
    with suppress(HashingError):
        read()


def written(content: bytes, name: str) -> Path:
    file = FOLDER / name
    file.write_bytes(content)
    return file


def seeds(reader: str) -> list[bytes]:
    """Return intact content for a reader."""
    run = FOLDER / "seeds"
    if not run.exists():
        HEAD.save(run)
    hasher = FeatureEncoder(HASHERS["itq"](8, random_state=0).fit(np.random.rand(20, 12)))  # noqa: NPY002
    table = "path,labels,split\na.jpg,x;y,train\nb.jpg,x,query\nc.jpg,y,database\n"
    return {
        "image": [picture(kind) for kind in ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")],
        "arrays": [archive(np.savez), archive(np.savez_compressed)],
        "array": [npy(np.eye(4, dtype=np.float32)), npy(np.arange(4)), npy(np.array(["a", "b"]))],
        "csv": [table.encode()],
        "parquet": [parquet_of(table)],
        "model": [encoder_to_bytes(HEAD), encoder_to_bytes(hasher)],
        "description": [json.dumps(each.model()[0]).encode() for each in (HEAD, hasher)],
        "checkpoint": [save(HEAD.model()[1], metadata={"orbithash": '{"made_with": "{}"}'})],
        "record": [(run / "run.json").read_bytes(), (run / "scores.json").read_bytes()],
        "scores": [b'{"map": 0.5, "queries": 2, "precision_recall": {"recall": [0.1]}}'],
        "database": [(intact_index() / "index.sqlite").read_bytes()],
        "segment": [next(intact_index().glob("*.segment")).read_bytes()],
    }[reader]


def picture(kind: str) -> bytes:
    content = io.BytesIO()
    Image.effect_noise((24, 16), 50).convert("RGB").save(content, format=kind)
    return content.getvalue()


def archive(write: Callable[..., None]) -> bytes:
    content = io.BytesIO()
    codes = {"codes": np.zeros((4, 1), np.uint8), "n_bits": 8}
    write(content, features=np.eye(4), labels=np.arange(4), train=np.arange(4), **codes)
    return content.getvalue()


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def parquet_of(table: str) -> bytes:
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(io.BytesIO(table.encode())), content)
    return content.getvalue()


READERS: dict[str, Callable[[bytes], None]] = {
    read.__name__: read
    for read in (
        *(image, arrays, array, csv, parquet, model, description, checkpoint, record, scores),
        *(database, segment),
    )
}
HEAD = FeatureEncoder(FeatureHead(6, 8, hidden=0).eval())
