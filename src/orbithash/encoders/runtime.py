"""Runtimes of a network: torch, onnxruntime (twice as fast on a CPU), and `.onnx` files.

The input is that of `read_view`, uint8 images (n, side, side, 3) in RGB, so preprocessing is part
of the ONNX model. Any number of images may be passed at once.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn

from orbithash.encoders.encoder import Encoder
from orbithash.errors import InputError, MissingExtraError
from orbithash.files import whole_file

PACKAGES = ("onnxruntime", "onnx", "onnxscript")

IMAGES_PER_CALL = 4  # few enough that a small batch keeps all threads busy

RUNTIMES = ("torch", "onnxruntime")

# Below this many images torch is faster: exporting to onnxruntime takes some ten seconds.
WORTH_EXPORTING = 1000

# From decoded images to the network's outputs.
Runtime = Callable[[UInt8[np.ndarray, "n side side 3"]], Float[np.ndarray, "n d"]]


def choose_runtime(network: nn.Module, *, n_images: int) -> str:
    """Choose onnxruntime for many images on the CPU, where the extra `onnx` is installed."""
    device = next(network.parameters()).device
    pays = device.type == "cpu" and n_images >= WORTH_EXPORTING
    return "onnxruntime" if pays and is_installed() else "torch"


def run_by(runtime: str, network: nn.Module, *, side: int) -> Runtime:
    """Return a function that runs the network on decoded images of `side` pixels."""
    if runtime not in RUNTIMES:
        raise InputError(f"there is no runtime {runtime!r}; choose from {', '.join(RUNTIMES)}")
    network.eval()
    if runtime == "onnxruntime":
        return OnnxNetwork(network, side=side)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    device = next(network.parameters()).device

    @torch.inference_mode()
    def outputs(pixels: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n d"]:
        # In memory the channels come last, the fastest layout for convolutions on a CPU.
        batch = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float()
        return np.asarray(network(batch).cpu().numpy())

    return outputs


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in PACKAGES)


class OnnxNetwork:
    """A network exported to ONNX; its outputs equal torch's except for the last digits."""

    def __init__(self, network: nn.Module, *, side: int) -> None:
        model = to_onnx(network, side=side)
        import onnxruntime

        # Each thread runs the whole network on a few images. Threads that share every layer wait
        # for one another, which costs a sixth of the time, and more on busy cores.
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="onnx")

    def __call__(self, pixels: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n d"]:
        # Parts of a fixed size: the number of threads must not change a digit.
        parts = (
            pixels[start : start + IMAGES_PER_CALL]
            for start in range(0, len(pixels), IMAGES_PER_CALL)
        )
        return np.concatenate(list(self._threads.map(self._run, parts)))

    def _run(self, pixels: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n d"]:
        (outputs,) = self._session.run(None, {"images": pixels})
        return np.asarray(outputs)


def to_onnx(network: nn.Module, *, side: int, output: str = "features") -> bytes:
    """Export a network of RGB images with values 0 … 255; return the bytes of an `.onnx` file."""
    # Two images: the exporter takes a batch of one for a fixed size.
    example = torch.zeros(2, side, side, 3, dtype=torch.uint8)
    return exported(FromPixels(network), example, input="images", output=output)


def exported(network: nn.Module, example: Tensor, *, input: str, output: str) -> bytes:
    """Export a network of one input with any number of rows."""
    if not is_installed():
        raise MissingExtraError("onnx")
    was_training = {module: module.training for module in network.modules()}
    try:
        with quiet():
            program = torch.onnx.export(
                network.eval(),
                (example,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
                input_names=[input],
                output_names=[output],
                verbose=False,
            )
    finally:
        for module, training in was_training.items():
            module.training = training
    assert program is not None
    model: bytes = program.model_proto.SerializeToString()
    return model


class FromPixels(nn.Module):
    """A network on images as they are decoded: uint8, channels last."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: UInt8[Tensor, "n side side 3"]) -> Float[Tensor, "n d"]:
        outputs: Tensor = self.network(pixels.permute(0, 3, 1, 2).float())
        return outputs


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's warnings about its internals and about packages it does not need."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def export_encoder(encoder: Encoder, file: Path) -> None:
    """Write a model whose output `embeddings` (n, bits) is above 0.5 where a bit is set.

    Its input is `images`, uint8 (n, side, side, 3) in RGB, cropped from photographs as the model's
    metadata say under `view`; or `features`, float32 (n, n_features).
    """
    model, metadata = encoder.to_onnx()
    with whole_file(file) as opened:
        opened.write(with_metadata(model, metadata))


def with_metadata(model: bytes, metadata: dict[str, Any]) -> bytes:
    """Return the model with metadata that any runtime shows: JSON under the key `orbithash`."""
    import onnx

    loaded = onnx.load_from_string(model)
    onnx.helper.set_model_props(loaded, {"orbithash": json.dumps(metadata)})
    return bytes(loaded.SerializeToString())
