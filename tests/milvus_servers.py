"""A real Milvus server for tests: the standalone one of the pip package `milvus`."""

import itertools
import os
import uuid
from pathlib import Path

import pytest

numbers = itertools.count()

# A server that is running already, such as http://127.0.0.1:19530, saves starting one.
RUNNING = "ORBITHASH_TEST_MILVUS"


class Server:
    """A server on a data folder, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = None
        self.address = ""

    def start(self) -> "Server":
        from milvus import MilvusServer, MilvusServerConfig

        config = MilvusServerConfig(data_dir=str(self._folder))
        for part in ("rootCoord", "proxy", "queryCoord", "queryNode", "dataCoord", "dataNode"):
            config.set(f"{part}.ip", "127.0.0.1")
        if self.address:  # the same port again
            config.update(proxy_port=int(self.address.rpartition(":")[2]))
        self._server = MilvusServer(config)
        self._server.start()
        self.address = f"http://127.0.0.1:{self._server.listen_port}"
        return self

    def kill(self) -> None:
        """It does not end when it is asked to."""
        self._server.server_proc.kill()
        self._server.server_proc.wait()
        self._server.stop()


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory):
    """The address of a server for all tests of a session."""
    if address := os.environ.get(RUNNING):
        yield address
        return
    pytest.importorskip("milvus", reason="the package milvus, a server for tests, is not installed")
    server = Server(tmp_path_factory.mktemp("milvus")).start()
    yield server.address
    server.kill()


def new_collection() -> str:
    """A name that no other test uses, also not one of another run on the same server."""
    return f"test_{uuid.uuid4().hex[:12]}_{next(numbers)}"
