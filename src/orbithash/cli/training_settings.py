"""Settings of training as the command line gives them."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.training import TrainingSettings


def chosen_settings(preset: str, *, on_images: bool, **given: Any) -> "TrainingSettings":
    """The preset with what was given on the command line in its place.

    A batch of another size brings its own learning rate, unless one was given.
    """
    from orbithash.training import IMAGE_PRESETS, PRESETS  # --help must not wait for torch

    presets = IMAGE_PRESETS if on_images else PRESETS
    if preset not in presets:
        raise InputError(f"there is no preset {preset!r}; choose from {', '.join(presets)}")
    given = {name: value for name, value in given.items() if value is not None}
    settings = replace(presets[preset], **given)
    if "batch_size" in given and "learning_rate" not in given:
        return replace(presets[preset].for_batches_of(settings.batch_size), **given)
    return settings


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
