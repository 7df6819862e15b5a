"""Functions and commands in processes that are killed, traced, or short of something."""

import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIMEOUT = 300.0  # seconds; only reached if a test fails


@dataclass(frozen=True)
class Fault:
    """What happens to a process, and what is recorded of it."""

    below: Path | None = None  # operations on files below this folder count
    kill_at: int = 0  # the number of the operation at which the process is killed
    full_at: int = 0  # from this operation on, the disk is full
    trace: Path | None = None
    count: Path | None = None
    address_space: int = 0  # bytes that it may have more than at its start
    user: str = ""
    clock: str = ""  # or "backwards"
    environment: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        return {
            "below": str(self.below or ""),
            "trace": str(self.trace or ""),
            "count": str(self.count or ""),
            "kill_at": self.kill_at,
            "full_at": self.full_at,
            "address_space": self.address_space,
            "user": self.user,
            "clock": self.clock,
            "environment": dict(self.environment),
        }


NONE = Fault()


class Process:
    """A job of the zygote; `wait` returns its exit code, negative for a signal."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._messages: queue.SimpleQueue[dict[str, int]] = queue.SimpleQueue()
        self.pid = 0

    def tell(self, message: dict[str, int]) -> None:
        self._messages.put(message)

    def started(self) -> "Process":
        self.pid = self._messages.get(timeout=TIMEOUT)["pid"]
        return self

    def wait(self, timeout: float = TIMEOUT) -> int:
        return self._messages.get(timeout=timeout)["code"]

    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""


class Zygote:
    """Starts functions in forks of one process that has imported everything."""

    def __init__(self, folder: Path) -> None:
        library = folder / "file_operations.so"
        build = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library)]
        subprocess.run([*build, str(HERE / "file_operations.c"), "-lpthread"], check=True)
        paths = [str(HERE.parents[1] / "src"), str(HERE.parent)]
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(paths)}
            | {"OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "200"},
        )
        self._numbers, self._jobs = itertools.count(), dict[int, Process]()
        assert self._server.stdout is not None
        self._server.stdout.readline()  # ready
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            message = json.loads(line)
            self._jobs[message["job"]].tell(message)

    def start(self, function: str, *arguments: Any, output: Path, fault: Fault = NONE) -> Process:
        """Begin `module:function` in a process of its own."""
        number, process = next(self._numbers), Process(output)
        self._jobs[number] = process
        job = {
            "job": number,
            "function": function,
            "arguments": [str(each) if isinstance(each, Path) else each for each in arguments],
            "output": str(output),
            **fault.values(),
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        return process.started()

    def command(self, *arguments: Any, output: Path, fault: Fault = NONE) -> Process:
        """Begin an `orbithash` command."""
        return self.start("faults.zygote:run_command", *arguments, output=output, fault=fault)

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()  # so that it ends; its jobs have ended
        self._server.wait()
        self._listener.join()
        assert self._server.stdout is not None
        self._server.stdout.close()


def can_disturb() -> bool:
    return sys.platform == "linux" and shutil.which("gcc") is not None
