"""For each extra, a program that needs it: without it, it must name the line that installs it."""

START = """
import os
import numpy as np
import orbithash
from orbithash.cli import main
from orbithash.errors import InputError, ServerError

os.environ["HF_HUB_OFFLINE"] = "1"
vectors = np.random.default_rng(0).standard_normal((40, 8)).astype("float32")
labels = np.arange(40) % 2
np.savez("features.npz", features=vectors, labels=labels, train=np.arange(40))

def trained(**options):
    return orbithash.train((vectors, labels), bits=8, epochs=2, hidden=0, **options)
"""

PROGRAMS = {
    "onnx": """
assert trained().to_onnx()[0]
""",
    "transformers": """
from orbithash.networks import load_photo_backbone
try:
    load_photo_backbone("transformers:no-such-folder")
except InputError as error:
    assert "cannot load" in str(error), error
""",
    "efficientnet": """
from orbithash.networks import load_photo_backbone
assert load_photo_backbone("efficientnet-lite0").n_features == 1280
""",
    "parquet": """
from pathlib import Path
from orbithash.data.table import read_parquet_rows
Path("table.parquet").write_bytes(b"PAR1")
try:
    list(read_parquet_rows(Path("table.parquet"), ("path",)))
except InputError as error:
    assert "table.parquet" in str(error), error
""",
    "heif": """
from orbithash.data.transforms import register_heif
register_heif()
""",
    "tensorboard": """
trained(tensorboard="log")
assert os.listdir("log")
""",
    "faiss": """
engine = orbithash.index.ENGINES["faiss"](n_bits=8)
engine.add(np.arange(3), np.array([[0], [1], [3]], np.uint8))
assert engine.search(np.zeros((1, 1), np.uint8), k=2).ids.tolist() == [[0, 1]]
""",
    "milvus": """
try:
    orbithash.open_index("milvus:http://127.0.0.1:9/nothing")
except ServerError:
    pass
""",
    "tune": """
main(["tune", "features.npz", "--bits", "8", "--trials", "1", "--epochs", "1", "--out", "study"])
""",
    "ray": """
from orbithash.encoders.on_ray import connected
with connected("local"):
    pass
""",
    "hub": """
try:
    orbithash.load("hf:nobody/nothing")
except ServerError:
    pass
""",
    "serve": """
try:
    main(["serve", "--port", "0", "nothing.orbit"])
except SystemExit:
    pass
import orbithash.serve.server
""",
}
