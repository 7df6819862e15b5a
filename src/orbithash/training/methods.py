"""A method by its name: the loss or the hasher, made for the data at hand."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from orbithash.errors import InputError
from orbithash.hashers import HASHERS, Hasher
from orbithash.losses import LOSSES


def check_method(method: str) -> None:
    if method not in LOSSES and method not in HASHERS:
        raise InputError(
            f"there is no method {method!r}; choose a loss ({', '.join(LOSSES)}) "
            f"or a hasher ({', '.join(HASHERS)})"
        )


def make_loss(
    method: str, options: Mapping[str, Any], *, n_bits: int, n_classes: int, seed: int
) -> nn.Module:
    """The loss with these options, told of bits, classes and seed where it asks for them."""
    known = {"n_bits": n_bits, "n_classes": n_classes, "seed": seed}
    accepted = option_names(LOSSES[method])
    check_options(method, options, accepted - known.keys())
    return LOSSES[method](**{name: known[name] for name in accepted & known.keys()}, **options)


def make_hasher(method: str, options: Mapping[str, Any], *, n_bits: int, seed: int) -> Hasher:
    """The hasher with these options."""
    check_options(method, options, option_names(HASHERS[method]) - {"n_bits", "random_state"})
    return HASHERS[method](n_bits=n_bits, random_state=seed, **options)


def option_names(kind: type) -> set[str]:
    return set(inspect.signature(kind).parameters)


def check_options(method: str, options: Mapping[str, Any], accepted: set[str]) -> None:
    if foreign := sorted(options.keys() - accepted):
        raise InputError(
            f"{method} has no option {foreign[0]!r}; it has {', '.join(sorted(accepted)) or 'none'}"
        )


def check_memory(loss: nn.Module, method: str) -> None:
    """Raise unless the loss can rank against a memory."""
    if "ref_emb" not in inspect.signature(loss.forward).parameters:
        raise InputError(f"{method} takes no memory of recent embeddings; train it with memory=0")
