"""The encoder of a Milvus collection, in a second collection beside it.

So that whoever can reach the server can search by image, as with a folder. A file of many
megabytes is cut into strings, which is all that Milvus stores besides vectors.
"""

import base64
import hashlib
import json

from orbithash.errors import InputError
from orbithash.index.milvus.server import MilvusServer

PART = 48_000  # bytes; as base64 just below the 65,535 characters that a string may have
TOGETHER = 32  # parts that are sent or fetched at once


def write_encoder(server: MilvusServer, collection: str, content: bytes) -> None:
    """Store a file; what a writer that died has left is replaced."""
    name = beside(collection)
    if server.has(name):
        server.drop(name)
    parts = [content[start : start + PART] for start in range(0, len(content), PART)]
    server.create(
        name,
        description=json.dumps(
            {"sha256": hashlib.sha256(content).hexdigest(), "parts": len(parts)}
        ),
        integers=["number"],
        strings={"part": 65_535},
        documents=[],
        vectors={"unused": 8},  # a collection needs one
    )
    server.make_searchable(name, "BIN_FLAT", "unused")
    rows = [
        {"number": number, "part": base64.b64encode(part).decode(), "unused": b"\0"}
        for number, part in enumerate(parts)
    ]
    for start in range(0, len(rows), TOGETHER):
        server.call("upsert", name, rows[start : start + TOGETHER])


def read_encoder(server: MilvusServer, collection: str) -> bytes:
    """The file that was stored, to the last byte."""
    name = beside(collection)
    if not server.has(name):
        raise InputError(f"{collection!r} holds no encoder; give codes instead of images")
    facts = json.loads(server.description(name))
    parts: dict[int, bytes] = {}
    for start in range(0, facts["parts"], TOGETHER):
        condition = f"number >= {start} and number < {start + TOGETHER}"
        for row in server.query(name, condition, ["number", "part"]):
            parts[row["number"]] = base64.b64decode(row["part"])
    content = b"".join(parts[number] for number in sorted(parts))
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise InputError(
            f"the encoder of {collection!r} is not whole; index again under a new name"
        )
    return content


def beside(collection: str) -> str:
    return f"{collection}__encoder"
