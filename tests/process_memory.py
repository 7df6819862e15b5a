"""The memory of this process and all that it has started."""

import gc
import os
import resource
from pathlib import Path

import torch


def megabytes_in_use() -> float:
    """What all of them hold together; a page that several share counts once."""
    gc.collect()
    kilobytes = 0
    for pid in [os.getpid(), *descendants(os.getpid())]:
        for line in read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


def peak_memory() -> int:
    """The bytes that this process has held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bytes_of_tensors() -> int:
    """What the tensors of this process hold, each memory counted once."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def descendants(pid: int) -> list[int]:
    children = [
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if parent_of(stat) == pid
    ]
    return children + [each for child in children for each in descendants(child)]


def parent_of(stat: Path) -> int | None:
    fields = read(stat).rpartition(")")[2].split()
    return int(fields[1]) if fields else None


def read(file: Path) -> str:
    """The file of a process that may end meanwhile."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
