"""What a fitted estimator has learned, as arrays and plain values: nothing is pickled.

An estimator is its parameters and what `fit` learned, the attributes that end in an underscore;
inside may be other estimators and frozen dataclasses. Arrays are gathered under dotted names, such
as `pca_.components_`; everything else is a tree for JSON in which `{"array": name, …}` stands for
an array and `{"type": name, "attributes": …}` for an object.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA

from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.hashers.kernel_supervised import AnchorKernel

# The only types that are ever made from a file.
TYPES: dict[str, type] = {kind.__name__: kind for kind in (*HASHERS.values(), AnchorKernel, PCA)}


def take_apart(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The value as a tree; its arrays are added to `arrays`, under names that begin with `name`."""
    if isinstance(value, np.ndarray):
        # The order of axes in memory decides how products are rounded, so it is kept.
        turned = value.flags.f_contiguous and not value.flags.c_contiguous
        arrays[name] = np.require(value.T if turned else value, requirements="C")
        return {"array": name, "turned": turned}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [take_apart(part, f"{name}.{place}", arrays) for place, part in enumerate(value)]
    kind = type(value).__name__
    if TYPES.get(kind) is not type(value):
        raise InputError(f"{name} is a {kind}, which cannot be saved; only hashers of HASHERS can")
    prefix = f"{name}." if name else ""
    attributes = {
        key: take_apart(part, prefix + key, arrays) for key, part in lasting(value).items()
    }
    return {"type": kind, "attributes": attributes}


def check_can_be_saved(hasher: Any) -> None:
    """Raise unless files can hold a hasher of this class."""
    kind = type(hasher).__name__
    if TYPES.get(kind) is not type(hasher):
        raise InputError(
            f"a {kind} cannot be saved; train it without out, or use one of {', '.join(HASHERS)}"
        )


def put_together(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that `take_apart` took apart."""
    if isinstance(tree, list):
        return [put_together(part, arrays) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        array = arrays[tree["array"]]
        return array.T if tree["turned"] else array
    if tree.get("type") not in TYPES:
        raise InputError(f"got an object of type {tree.get('type')!r}, which is not a hasher's")
    kind = TYPES[tree["type"]]
    for key in tree["attributes"]:
        if not is_learned(key) and key not in attribute_names(kind):
            raise InputError(f"got an attribute {key!r}, which a {tree['type']} does not have")
    made: Any = object.__new__(kind)
    # A frozen dataclass forbids assignment, not its dictionary.
    vars(made).update({key: put_together(part, arrays) for key, part in tree["attributes"].items()})
    return made


def lasting(value: Any) -> dict[str, Any]:
    """The attributes that make an object what it is."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    assert isinstance(value, BaseEstimator)
    parameters: dict[str, Any] = value.get_params(deep=False)
    # What was drawn is learned by now, and a generator is not a plain value.
    parameters["random_state"] = None
    learned = {key: part for key, part in vars(value).items() if is_learned(key)}
    return parameters | learned


def attribute_names(kind: type) -> set[str]:
    """The fields of a dataclass, or the parameters of an estimator."""
    if is_dataclass(kind):
        return {field.name for field in fields(kind)}
    return set(signature(kind).parameters)


def is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")
