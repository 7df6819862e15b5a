"""Questions to an index and its answers, before they are JSON."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index, Items, Metadata, Where
from orbithash.retrieval.query import still_there
from orbithash.serve.problems import UnknownItemError


@dataclass(frozen=True)
class Question:
    """By a code or by the id of a stored item; `labels` are those that may be found."""

    k: int
    radius: int | None = None
    labels: tuple[str, ...] = ()
    id: int | None = None
    code: bytes = b""


@dataclass(frozen=True)
class Found:
    """A stored item that answers."""

    id: int
    distance: int
    code: bytes
    metadata: Metadata


@dataclass(frozen=True)
class Reply:
    """The code that was asked with, what is known of it if it is stored, and what was found."""

    code: bytes
    metadata: Metadata | None
    found: tuple[Found, ...]


def ask(index: Index, questions: Sequence[Question]) -> list[Reply]:
    """Answer several questions; those that differ in their codes alone are one search."""
    asked = stored(index, [question.id for question in questions if question.id is not None])
    codes = [
        question.code if question.id is None else asked[question.id][0] for question in questions
    ]
    pairs = nearest(index, questions, codes)
    found = still_there(index, sorted({i for each in pairs for _, i in each}))
    return [
        Reply(
            code,
            None if question.id is None else asked[question.id][1],
            tuple(Found(i, distance, *found[i]) for distance, i in each if i in found),
        )
        for question, code, each in zip(questions, codes, pairs, strict=True)
    ]


def nearest(
    index: Index, questions: Sequence[Question], codes: Sequence[bytes]
) -> list[list[tuple[int, int]]]:
    """Pairs of distance and id for each question, nearest first, without the item itself."""
    groups: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        groups[question.k, question.labels].append(number)
    result: list[list[tuple[int, int]]] = [[] for _ in questions]
    for (k, labels), numbers in groups.items():
        queries = as_array([codes[number] for number in numbers])
        # One more than wanted, because a stored item finds itself.
        by_id = any(questions[number].id is not None for number in numbers)
        hits = index.search(queries, k + by_id, Where(labels=labels) if labels else None)
        for row, number in enumerate(numbers):
            own, radius = questions[number].id, questions[number].radius
            pairs = zip(hits.distances[row].tolist(), hits.ids[row].tolist(), strict=True)
            result[number] = [
                (distance, i)
                for distance, i in pairs
                if distance >= 0 and i != own and (radius is None or distance <= radius)
            ][:k]
    return result


def stored(index: Index, ids: Sequence[int]) -> dict[int, tuple[bytes, Metadata]]:
    """Code and metadata by id; `UnknownItemError` names the first that is not there."""
    if not ids:
        return {}
    items = items_of(index, ids)
    return {
        i: (code.tobytes(), metadata)
        for i, code, metadata in zip(ids, items.codes, items.metadata, strict=True)
    }


def items_of(index: Index, ids: Sequence[int]) -> Items:
    try:
        return index.get(np.array(ids, dtype=np.int64))
    except DamagedIndexError:
        raise
    except InputError as error:
        raise UnknownItemError(str(error)) from None


def as_array(codes: Sequence[bytes]) -> UInt8[np.ndarray, "n bytes"]:
    return np.frombuffer(b"".join(codes), dtype=np.uint8).reshape(len(codes), -1)
