"""Networks from a file: a description of their shape, and their weights.

The file may come from a stranger. A few bytes of description can stand for gigabytes of weights, so
nothing of a network is created that its file does not contain.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from orbithash.errors import InputError

# Our networks create as many numbers as they have weights, and besides them constants such as
# positions, and one image. They call at most eight functions for each weight.
ELEMENTS_PER_WEIGHT, MORE_ELEMENTS = 2, 1 << 24
CALLS_PER_WEIGHT, MORE_CALLS = 32, 2000

Network = TypeVar("Network", bound=nn.Module)


def network_of(make: Callable[[], Network], weights: Mapping[str, Tensor]) -> Network:
    """Return the network that `make` creates, with these weights, in evaluation mode.

    `make` first runs on the meta device, where tensors have a shape and no memory. It is stopped
    once it exceeds what the weights need, and must give exactly their names and shapes.
    """
    with torch.device("meta"), WithinWeights(weights):
        outline = make().state_dict()
    check_fit(outline, weights)
    network = make()
    network.load_state_dict(weights)
    return network.eval()


class WithinWeights(TorchFunctionMode):
    """Raises an error if a network is created that is larger than these weights."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        n_elements = sum(weight.numel() for weight in weights.values())
        self.elements_left = ELEMENTS_PER_WEIGHT * n_elements + MORE_ELEMENTS
        self.calls_left = CALLS_PER_WEIGHT * len(weights) + MORE_CALLS

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        self.calls_left -= 1
        # A function of tensors is no new part of the network.
        of_tensors = any(isinstance(value, Tensor) for value in (*args, *kwargs.values()))
        if isinstance(result, Tensor) and not of_tensors:
            self.elements_left -= result.numel()
        if self.calls_left < 0 or self.elements_left < 0:
            raise InputError("it describes a larger network than its weights are of")
        return result


def check_fit(outline: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Raise unless the weights have the names and shapes of the outline."""
    if differing := sorted(outline.keys() ^ weights.keys()):
        kind = "lacks the weight" if differing[0] in outline else "has the unexpected weight"
        raise InputError(f"it {kind} {differing[0]!r}")
    for name, described in outline.items():
        if weights[name].shape != described.shape:
            raise InputError(
                f"its weight {name!r} has the shape {tuple(weights[name].shape)}, but is described "
                f"with {tuple(described.shape)}"
            )
