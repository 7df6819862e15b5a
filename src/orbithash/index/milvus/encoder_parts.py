"""The encoder of a Milvus collection, in a second collection.

Every client of the server can then search by image, as with a folder. Besides vectors, Milvus
stores only short strings, so the file is split into parts.
"""

import base64
import hashlib
import json

from orbithash.errors import InputError
from orbithash.index.milvus.server import MilvusServer

PART = 48_000  # bytes; as base64 just below the 65,535 characters that a string may have
BATCH_PARTS = 32  # that are sent or fetched at once


def write_encoder(server: MilvusServer, collection: str, content: bytes) -> None:
    """Store the encoder's file, replacing the remains of a writer that died."""
    name = encoder_collection(collection)
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
    for start in range(0, len(rows), BATCH_PARTS):
        server.call("upsert", name, rows[start : start + BATCH_PARTS])


def read_encoder(server: MilvusServer, collection: str) -> bytes:
    """Return the encoder's file; raise unless it matches its digest."""
    name = encoder_collection(collection)
    if not server.has(name):
        raise InputError(f"{collection!r} holds no encoder; give codes instead of images")
    facts = json.loads(server.description(name))
    # It never changes, and the digest tells whether a new one is visible already: waiting for
    # all earlier writes, some tenths of a second in each request, is needed only then.
    for level in ("Eventually", "Strong"):
        content = read_parts(server, name, facts["parts"], level)
        if hashlib.sha256(content).hexdigest() == facts["sha256"]:
            return content
    raise InputError(f"the encoder of {collection!r} is incomplete; index again under a new name")


def read_parts(server: MilvusServer, name: str, n_parts: int, level: str) -> bytes:
    """Return the parts that are visible at a consistency level, joined."""
    parts: dict[int, bytes] = {}
    for start in range(0, n_parts, BATCH_PARTS):
        condition = f"number >= {start} and number < {start + BATCH_PARTS}"
        for row in server.query(name, condition, ["number", "part"], level=level):
            parts[row["number"]] = base64.b64decode(row["part"])
    return b"".join(parts[number] for number in sorted(parts))


def encoder_collection(collection: str) -> str:
    return f"{collection}__encoder"
