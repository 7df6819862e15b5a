"""Rows of Milvus collections: our items, filters and results, and the encoder in parts.

The encoder is stored in a second collection, so that every client of the server can search by
image, as with a folder. Besides vectors, Milvus stores only short strings, so the encoder's file is
split into parts.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.codes import code_bytes
from orbithash.errors import InputError
from orbithash.index.base import Items, Metadata, Value, Where
from orbithash.index.code_table import CodeTable, empty_table
from orbithash.index.milvus.server import MilvusServer

FORMAT = 1  # of a collection
PART = 48_000  # bytes; as base64 just below the 65,535 characters that a string may have
BATCH_PARTS = 32  # that are sent or fetched at once


def check_comparable(fields: Mapping[str, Value]) -> None:
    """Raise for numbers that Milvus would round, so that a filter would find others too."""
    for name, value in fields.items():
        exact = 2**53 if isinstance(value, float) else 2**63
        if not isinstance(value, str) and abs(value) >= exact:
            raise InputError(
                f"the field {name!r} is {value!r}; Milvus compares whole numbers exactly below "
                "2⁶³, and floats below 2⁵³: give such a number as a string"
            )


def as_row(identifier: int, code: bytes, metadata: Metadata) -> dict[str, Any]:
    """Return the row of an item."""
    return {
        "id": identifier,
        "code": code,
        "path": metadata.path,
        "source": metadata.source,
        "metadata": {
            "labels": list(metadata.labels),
            "stamp": metadata.stamp,
            "fields": dict(metadata.fields),
        },
    }


def row_metadata(row: Any) -> Metadata:
    """Return the metadata of a row."""
    document = row["metadata"]
    return Metadata(
        path=row["path"],
        labels=tuple(document["labels"]),
        source=row["source"],
        stamp=document["stamp"],
        fields=document["fields"],
    )


def row_codes(rows: list[Any], n_bits: int) -> UInt8[np.ndarray, "n bytes"]:
    """Return the codes of rows."""
    codes = np.frombuffer(b"".join(row["code"][0] for row in rows), dtype=np.uint8)
    return codes.reshape(len(rows), code_bytes(n_bits))


def as_items(rows: list[Any], n_bits: int) -> Items:
    """Return the items of rows."""
    return Items(
        np.array([row["id"] for row in rows], dtype=np.int64),
        row_codes(rows, n_bits),
        tuple(row_metadata(row) for row in rows),
    )


def collection_description(n_bits: int) -> str:
    """Return the description of a new collection."""
    return json.dumps({"orbithash": FORMAT, "n_bits": int(n_bits)})


def described_bits(description: str, collection: str) -> int:
    """Return the number of bits from a collection's description."""
    try:
        facts = json.loads(description)
        version, n_bits = facts["orbithash"], int(facts["n_bits"])
    except (ValueError, LookupError, TypeError):
        raise InputError(
            f"the collection {collection!r} was not made by orbithash; give another name"
        ) from None
    if version != FORMAT:
        raise InputError(
            f"the collection {collection!r} has format {version}, and this version of "
            f"orbithash reads format {FORMAT}; use the version that wrote it"
        )
    return n_bits


def sorted_hits(hits: Any) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return ids and distances of one query's hits; equal distances in the order of ids."""
    pairs = sorted((round(hit["distance"]), hit["id"]) for hit in hits)
    distances, ids = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    return ids, distances


def as_table(hits: Any, n_bits: int) -> CodeTable:
    """Return the hits of one query, which have their codes, as a table of codes."""
    ids = np.array([hit["id"] for hit in hits], dtype=np.int64)
    codes = np.frombuffer(b"".join(hit["entity"]["code"] for hit in hits), dtype=np.uint8)
    return empty_table(n_bits).with_items(ids, codes.reshape(len(ids), code_bytes(n_bits)))


def filter_expression(where: Where | None) -> str:
    """Return a filter in Milvus's language, whose strings are written as in JSON.

    >>> filter_expression(Where(labels=("dog",), fields={"year": 2020}))
    'json_contains_any(metadata["labels"], ["dog"]) and metadata["fields"]["year"] == 2020'
    """
    if where is None:
        return ""
    check_comparable(where.fields)
    conditions = []
    if where.labels:
        labels = json.dumps(where.labels, ensure_ascii=False)
        conditions.append(f'json_contains_any(metadata["labels"], {labels})')
    for name, value in where.fields.items():
        key, literal = (json.dumps(part, ensure_ascii=False) for part in (name, value))
        conditions.append(f'metadata["fields"][{key}] == {literal}')
    return " and ".join(conditions)


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
