"""A process that has imported everything and forks: functions start in a moment, disturbed or not.

It is run with `file_operations.c` preloaded, reads one job per line of its input, as JSON, and
writes a line when a job has begun and one when it has ended.
"""

import ctypes
import importlib
import itertools
import json
import os
import pwd
import resource
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

PRELOADED = (
    "orbithash.cli",
    "orbithash.training",
    "orbithash.evaluation",
    "orbithash.serve.server",
    "orbithash.experiments.reproduce",
    "orbithash.retrieval",
    "index_writer",
    "sealed_indexes",
)


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    answer(ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(job)
        answer(job=job["job"], pid=pid)
        threading.Thread(target=reap, args=(job["job"], pid), daemon=True).start()


def reap(job: int, pid: int) -> None:
    answer(job=job, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def answer(**values: Any) -> None:
    os.write(1, (json.dumps(values) + "\n").encode())


def run(job: dict[str, Any]) -> None:
    """Run a job in this process, which ends with it."""
    code = 1
    try:
        with open(os.devnull) as nothing, open(job["output"], "a") as output:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prepare(job)
        module, _, name = job["function"].partition(":")
        code = getattr(importlib.import_module(module), name)(*job["arguments"]) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def prepare(job: dict[str, Any]) -> None:
    if job["address_space"]:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + job["address_space"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if job["user"]:
        entry = pwd.getpwnam(job["user"])
        os.setgroups([])
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    os.environ.update(job["environment"])
    if job["clock"] == "backwards":
        now, readings = time.time(), itertools.count()
        time.time = lambda: now - 60 * next(readings)
    if job["below"]:
        texts = [job[name].encode() for name in ("below", "trace", "count")]
        numbers = [ctypes.c_long(job[name]) for name in ("kill_at", "full_at")]
        ctypes.CDLL(None).configure_faults(*texts, *numbers)


def run_command(*arguments: str) -> int:
    """Run an `orbithash` command, with one thread."""
    import torch

    from orbithash.cli import run

    torch.set_num_threads(1)
    return run(list(arguments))


if __name__ == "__main__":
    main()
