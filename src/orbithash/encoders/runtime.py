"""What runs a network when images are encoded: torch, or onnxruntime where that pays."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import nn

from orbithash.encoders.onnx_runtime import OnnxNetwork, is_installed
from orbithash.errors import InputError

RUNTIMES = ("torch", "onnxruntime")

# Fewer images are done by torch before onnxruntime has started: exporting takes some ten seconds.
WORTH_EXPORTING = 1000

Describe = Callable[[UInt8[np.ndarray, "n side side 3"]], Float32[np.ndarray, "n d"]]


def choose_runtime(network: nn.Module, *, n_images: int) -> str:
    """onnxruntime for many images on a processor, where the extra `onnx` is installed."""
    device = next(network.parameters()).device
    pays = device.type == "cpu" and n_images >= WORTH_EXPORTING
    return "onnxruntime" if pays and is_installed() else "torch"


def run_by(runtime: str, network: nn.Module, *, side: int) -> Describe:
    """A function from decoded images of `side` pixels to the network's outputs."""
    if runtime not in RUNTIMES:
        raise InputError(f"there is no runtime {runtime!r}; choose from {', '.join(RUNTIMES)}")
    network.eval()
    if runtime == "onnxruntime":
        return OnnxNetwork(network, side=side)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    device = next(network.parameters()).device

    @torch.inference_mode()
    def outputs(pixels: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n d"]:
        # Channels already come last in memory, as convolutions on a processor like it best.
        batch = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float()
        return np.asarray(network(batch).cpu().numpy())

    return outputs
