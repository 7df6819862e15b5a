"""Conversion between our items, filters and results and those of Milvus."""

import json
from typing import Any

import numpy as np

from orbithash.index.base import Ball, Metadata, Where


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


def as_ball(hits: Any) -> Ball:
    """Return the hits of one query; equal distances in the order of ids."""
    pairs = sorted((round(hit["distance"]), hit["id"]) for hit in hits)
    distances, ids = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    return Ball(ids=ids, distances=distances)


def filter_expression(where: Where | None) -> str:
    """Return a filter in Milvus's language, whose strings are written as in JSON.

    >>> filter_expression(Where(labels=("dog",), fields={"year": 2020}))
    'json_contains_any(metadata["labels"], ["dog"]) and metadata["fields"]["year"] == 2020'
    """
    if where is None:
        return ""
    conditions = []
    if where.labels:
        labels = json.dumps(where.labels, ensure_ascii=False)
        conditions.append(f'json_contains_any(metadata["labels"], {labels})')
    for name, value in where.fields.items():
        key, literal = (json.dumps(part, ensure_ascii=False) for part in (name, value))
        conditions.append(f'metadata["fields"][{key}] == {literal}')
    return " and ".join(conditions)
