"""A Ray cluster of two machines with one core each, both of them on this one."""

import os
import signal
from pathlib import Path

import pytest

import orbithash

RAYS_OWN_WARNINGS = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning")
]


@pytest.fixture(scope="session")
def ray_address():
    """One cluster for all tests of a session: a process that changes it confuses Ray Data."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(Path(orbithash.__file__).parents[1])  # of the workers too
    from ray.cluster_utils import Cluster

    machine = {"num_cpus": 1, "object_store_memory": 200 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=machine)
    cluster.add_node(**machine)
    yield cluster.address
    cluster.shutdown()


class KillsOneWorker:
    """A report of progress that kills a worker as soon as some images are done."""

    def __init__(self, after: int) -> None:
        self.after, self.killed = after, 0

    def __call__(self, done: int, total: int) -> None:
        if self.after <= done < total and not self.killed:
            self.killed = workers_below(os.getpid())[0]
            os.kill(self.killed, signal.SIGKILL)


def workers_below(process: int) -> list[int]:
    """Return the actors of Ray Data that a process has started."""
    return [child for child in descendants(process) if "MapWorker" in command_of(child)]


def descendants(process: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            children = [int(child) for child in (thread / "children").read_text().split()]
        except OSError:  # it has ended
            continue
        for child in children:
            found += [child, *descendants(child)] if Path(f"/proc/{child}").exists() else []
    return found


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
