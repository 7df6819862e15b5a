"""What runs a network when images are encoded: torch, or onnxruntime where that pays.

Input is what `read_view` gives, uint8 images (n, side, side, 3) in RGB, so whatever happens to them
before the first layer is inside the model. Any number of images may come at once.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn

from orbithash.errors import InputError, MissingExtraError

PACKAGES = ("onnxruntime", "onnx", "onnxscript")

TOGETHER = 4  # images: few enough to keep all threads busy with a small batch


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in PACKAGES)


class OnnxNetwork:
    """A network, exported when it is made; the same outputs as torch gives but for last digits."""

    def __init__(self, network: nn.Module, *, side: int) -> None:
        model = to_onnx(network, side=side)
        import onnxruntime

        # Each thread runs the whole network on a few images: threads that share every layer wait
        # for one another, which costs a sixth of the time, and more on busy cores.
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="onnx")

    def __call__(self, pixels: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n d"]:
        # Parts of one size whatever the number of threads, so that it cannot change a digit.
        parts = (pixels[start : start + TOGETHER] for start in range(0, len(pixels), TOGETHER))
        return np.concatenate(list(self._threads.map(self._run, parts)))

    def _run(self, pixels: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n d"]:
        (outputs,) = self._session.run(None, {"images": pixels})
        return np.asarray(outputs)


def to_onnx(network: nn.Module, *, side: int, output: str = "features") -> bytes:
    """The network as the bytes of an `.onnx` file; it must take RGB images of values 0 … 255."""
    # Two images, because a batch of one would be taken for a fixed size.
    example = torch.zeros(2, side, side, 3, dtype=torch.uint8)
    return exported(FromPixels(network), example, input="images", output=output)


def exported(network: nn.Module, example: Tensor, *, input: str, output: str) -> bytes:
    """A network of one input, of which any number of rows may come at once, as ONNX."""
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
    """A network that takes images as they are decoded: bytes, with the channels last."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: UInt8[Tensor, "n side side 3"]) -> Float[Tensor, "n d"]:
        outputs: Tensor = self.network(pixels.permute(0, 3, 1, 2).float())
        return outputs


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's remarks about its own insides and about packages it does not need."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


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
