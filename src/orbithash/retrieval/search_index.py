"""The encoder that an index was made with: it goes along, so that whoever has one has both."""

from pathlib import Path

from orbithash.errors import InputError
from orbithash.index import Index, create_index, index_exists, open_index


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
