"""Settings of training as the command line gives them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.training import TrainingSettings


def chosen_settings(
    preset: str, from_file: Mapping[str, Any], *, on_images: bool, **on_command_line: Any
) -> "TrainingSettings":
    """The preset, changed by what a file says and then by what the command line says.

    A batch of another size brings its own learning rate, unless one was given.
    """
    from orbithash.training import IMAGE_PRESETS, PRESETS  # --help must not wait for torch

    presets = IMAGE_PRESETS if on_images else PRESETS
    if preset not in presets:
        raise InputError(f"there is no preset {preset!r}; choose from {', '.join(presets)}")
    given = dict(from_file) | {
        name: value for name, value in on_command_line.items() if value is not None
    }
    settings = replace(presets[preset], **given)
    if "batch_size" in given and "learning_rate" not in given:
        return replace(presets[preset].for_batches_of(settings.batch_size), **given)
    return settings


def settings_from(file: Path, method: str, n_bits: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of training and options of the method from a file that `tune` wrote."""
    from orbithash.training.settings import read_settings

    chosen = read_settings(file)
    if chosen.method != method:
        raise InputError(
            f"{file} has settings for {chosen.method}, but the method is {method}; "
            f"add --method {chosen.method}"
        )
    return dict(chosen.settings), chosen.options_at(n_bits)


def hidden_of(run: Path) -> int | None:
    """The hidden units of a run, None of a hasher: what starts from it must have as many."""
    from orbithash.encoders import read_record

    return read_record(run).settings.get("hidden")


def method_options(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs: numbers, true and false as such, anything else as text.

    >>> method_options(["gamma=3", "reduction=mean"])
    {'gamma': 3, 'reduction': 'mean'}
    """
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--option {pair} is not NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
