"""What something was made with, as an object in JSON: has it changed since?"""

import json
from collections.abc import Set
from typing import Any


def changed_settings(before: str, now: str, *, besides: Set[str] = frozenset()) -> str:
    """The names of the settings that differ, as a phrase; empty if none does, or `besides` alone.

    >>> changed_settings('{"backbone": "a", "view": 1}', '{"backbone": "b", "view": 1}')
    'backbone'
    """
    old, new = read(before), json.loads(now)
    names = [name for name in new | old if name not in besides]
    return " and ".join(name for name in names if old.get(name) != new.get(name))


def weights_digest(note: str) -> str | None:
    """The digest of the weights of the network that made features, where their note has it."""
    digest = read(note).get("weights")
    return digest if isinstance(digest, str) else None


def read(note: str) -> dict[str, Any]:
    try:
        return dict(json.loads(note))
    except (TypeError, ValueError):  # somebody else's
        return {}
