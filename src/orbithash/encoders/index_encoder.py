"""The encoder that an index was made with: it goes along, so that whoever has one has both."""

import tempfile
from pathlib import Path

from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.model_file import read_encoder
from orbithash.errors import InputError
from orbithash.index import Index, create_index, index_exists, open_index


def encoder_of(index: Index) -> FeatureEncoder | ImageEncoder:
    """The encoder whose codes an index holds, ready to encode."""
    content = index.encoder()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        file.write_bytes(content)
        return read_encoder(file)


def index_of_run(address: str | Path, encoder_file: Path, *, n_bits: int) -> Index:
    """The index at an address, made if it is not there; it must hold codes of this encoder."""
    content = encoder_file.read_bytes()
    if not index_exists(address):
        return create_index(address, n_bits, encoder=content)
    index = open_index(address)
    if index.encoder() != content:
        index.close()
        raise InputError(
            f"{address} holds codes of another encoder, which cannot be compared with this one's; "
            "give the run that made it, or another name"
        )
    return index
