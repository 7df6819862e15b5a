"""How each row of a table was trained: once what is usual in the table, then what differs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orbithash.experiments.table import Results


@dataclass(frozen=True)
class RowSettings:
    """A row's method, its options, and the settings in which it is not as usual."""

    row: str
    shown: str
    method: str
    settings: Mapping[str, str]


def usual_settings(results: Results) -> dict[str, Any]:
    """The commonest value of every setting, among all trainings of a network."""
    trained = [
        stage["settings"]
        for stages in results.stages.values()
        for stage in stages
        if stage["settings"]
    ]
    names = trained[0] if trained else {}
    return {
        name: Counter(settings[name] for settings in trained).most_common(1)[0][0] for name in names
    }


def row_settings(results: Results) -> list[RowSettings]:
    """One for every row, in the table's order; a row of two stages says what each has."""
    usual = usual_settings(results)
    rows = []
    for line in results.table.lines:
        stages = results.stages[line.row.name]
        values: dict[str, list[str]] = {}
        for stage in stages:
            settings = stage["settings"] or {}
            own = {name: value for name, value in settings.items() if value != usual[name]}
            options = dict(stage["options"])
            if settings.get("reduction") is not None:
                options.pop("reduction", None)  # the loss's default, which the settings replace
            if stage["margin_of_bits"] is not None:
                options["margin"] = f"{stage['margin_of_bits']:g} of the bits"
            for name, value in (options | own).items():
                values.setdefault(name, []).append(shown_value(value))
        rows.append(
            RowSettings(
                row=line.row.name,
                shown=line.shown,
                method=", then ".join(stage["method"] for stage in stages),
                settings={name: ", then ".join(dict.fromkeys(v)) for name, v in values.items()},
            )
        )
    return rows


def shown_value(value: Any) -> str:
    """A value as one would write it; None leaves it to the method.

    >>> shown_value(0.003), shown_value(None), shown_value(True)
    ('0.003', 'its own', 'yes')
    """
    if value is None:
        return "its own"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
