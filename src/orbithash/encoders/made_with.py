"""What something was made with, as an object in JSON: has it changed since?"""

import json
from collections.abc import Set


def changed_settings(before: str, now: str, *, besides: Set[str] = frozenset()) -> str:
    """The names of the settings that differ, as a phrase; empty if none does, or `besides` alone.

    >>> changed_settings('{"backbone": "a", "view": 1}', '{"backbone": "b", "view": 1}')
    'backbone'
    """
    try:
        old = dict(json.loads(before))
    except (TypeError, ValueError):  # somebody else's note
        old = {}
    settings = json.loads(now).items()
    changed = [name for name, value in settings if old.get(name) != value and name not in besides]
    return " and ".join(changed)
