"""The state of a run in one file, to resume it; written atomically, as safetensors."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from orbithash.encoders.runs.fingerprints import changed_settings
from orbithash.errors import InputError
from orbithash.files import whole_file
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.state import TrainingState

HEADER, CHECKSUM = "orbithash", "checksum"


class Checkpoints:
    """Saves and restores the last state of a run in a file.

    `made_with` is JSON of all that the run depends on: a state is never restored with other
    settings or data. Weights, optimizer, memory, best epoch and torch's random state of every
    process are tensors in a safetensors file; everything else is JSON in its header, with a
    checksum of it all: a flipped bit must not go on in the weights.
    """

    def __init__(
        self,
        file: Path,
        *,
        every: float = 60.0,  # seconds
        processes: Processes = SINGLE_PROCESS,
        made_with: str = "{}",
    ) -> None:
        self.file, self.every, self.processes, self.made_with = file, every, processes, made_with
        self._saved = time.monotonic()

    def for_run(self, made_with: Mapping[str, Any]) -> "Checkpoints":
        """Return checkpoints of a run that depends on these values too."""
        values = json.loads(self.made_with) | dict(made_with)
        described = json.dumps(values | {"number of processes": self.processes.count})
        return Checkpoints(
            self.file, every=self.every, processes=self.processes, made_with=described
        )

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.every

    def save(self, state: TrainingState) -> None:
        """Replace the saved state; all processes must call this together."""
        random = self.processes.gather_objects(random_states(state.network))
        if self.processes.first:
            tensors = {name: plain(tensor) for name, tensor in state.tensors().items()}
            for rank, states in enumerate(random):
                tensors |= {f"random/{rank}/{name}": plain(each) for name, each in states.items()}
            header = json.dumps({"made_with": self.made_with, "values": state.values()})
            metadata = {HEADER: header, CHECKSUM: checksum(tensors, header)}
            content = save(tensors, metadata=metadata)
            with whole_file(self.file) as opened:
                opened.write(content)
        self._saved = time.monotonic()

    def restore(self, state: TrainingState) -> bool:
        """Restore the saved state; return False if there is none."""
        if not self.file.exists():
            return False
        tensors, header = read(self.file)
        if changed := changed_settings(header["made_with"], self.made_with):
            raise InputError(
                f"{self.file.parent} was started with other {changed}; use the same, "
                "or start again with --force instead of --resume"
            )
        rank = self.processes.rank
        try:
            state.restore(tensors, header["values"])
            torch.set_rng_state(tensors[f"random/{rank}/processor"])
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"{self.file.parent} was started by another version of orbithash ({reason}); "
                "start again with --force instead of --resume"
            ) from None
        device, drawn = device_of(state.network), tensors.get(f"random/{rank}/device")
        if device.type == "cuda" and drawn is not None:  # otherwise it was begun on a CPU
            torch.cuda.set_rng_state(drawn, device)
        self._saved = time.monotonic()
        return True


def read_header(file: Path) -> dict[str, Any]:
    """Return the settings and plain values of a checkpoint, without its tensors."""
    try:
        with safe_open(file, framework="pt") as opened:
            return header_of(opened)
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise unreadable_checkpoint(file, error) from None


def header_of(opened: Any) -> dict[str, Any]:
    header = json.loads((opened.metadata() or {})[HEADER])
    kinds = {"made_with": str, "values": dict}
    if not all(isinstance(header[name], kind) for name, kind in kinds.items()):
        raise TypeError
    return dict(header)


def unreadable_checkpoint(file: Path, error: Exception) -> InputError:
    no_state = isinstance(error, LookupError | TypeError)
    reason = "it holds no state of a run" if no_state else error
    return InputError(
        f"cannot read the checkpoint {file}: {reason}; start again with --force instead of --resume"
    )


def read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(file, framework="pt") as opened:
            header = header_of(opened)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            metadata = opened.metadata()
        # Earlier versions wrote no checksum.
        if metadata.get(CHECKSUM) not in (None, checksum(tensors, metadata[HEADER])):
            raise ValueError("its checksum does not match, so some of it is not as written")
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise unreadable_checkpoint(file, error) from None
    return tensors, header


def checksum(tensors: Mapping[str, Tensor], header: str) -> str:
    digest = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def random_states(network: torch.nn.Module) -> dict[str, Tensor]:
    states = {"processor": torch.get_rng_state()}
    device = device_of(network)
    if device.type == "cuda":
        states["device"] = torch.cuda.get_rng_state(device)
    return states


def device_of(network: torch.nn.Module) -> torch.device:
    return next(network.parameters()).device


def plain(tensor: Tensor) -> Tensor:
    """Return a contiguous copy on the CPU, which safetensors can write."""
    return tensor.detach().cpu().contiguous().clone()
