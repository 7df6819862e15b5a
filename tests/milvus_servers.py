"""A real Milvus server for tests: the standalone one of the pip package `milvus`."""

import itertools
import os
import socket
import uuid
from pathlib import Path

import pytest

numbers = itertools.count()

# A server that is running already, such as http://127.0.0.1:19530, saves starting one.
RUNNING = "ORBITHASH_TEST_MILVUS"


class Server:
    """A server on a data folder, which can be killed and started again."""

    def __init__(self, folder: Path | None, address: str = "") -> None:
        self._folder, self.address = folder, address
        self._server = None

    @property
    def is_ours(self) -> bool:
        return self._folder is not None

    def start(self) -> None:
        """Takes about ten seconds, and as much again the first time, when it is unpacked."""
        import milvus

        class Config(milvus.MilvusServerConfig):
            def try_bind_port(self, port):
                """As its own, but a port that a killed server has left is free at once."""
                bound = socket.socket()
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    bound.bind(("127.0.0.1", port))
                    bound.listen()
                except OSError:
                    bound.close()
                    return None
                return bound

        options = {"proxy_port": int(self.address.rpartition(":")[2])} if self.address else {}
        config = Config(data_dir=str(self._folder), **options)
        # Its parts find each other by this address, not by that of another network.
        for part in ("rootCoord", "proxy", "queryCoord", "queryNode", "dataCoord", "dataNode"):
            config.set(f"{part}.ip", "127.0.0.1")
        self._server = milvus.MilvusServer(config)
        self._server.start()
        self.address = f"http://127.0.0.1:{self._server.listen_port}"

    def kill(self) -> None:
        """It does not end when it is asked to."""
        self._server.server_proc.kill()
        self._server.server_proc.wait()
        self._server.stop()


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory):
    """One server for all tests of a session."""
    if address := os.environ.get(RUNNING):
        yield Server(None, address)
        return
    pytest.importorskip("milvus", reason="the package milvus, a server for tests, is not installed")
    server = Server(tmp_path_factory.mktemp("milvus"))
    server.start()
    yield server
    server.kill()


def new_collection() -> str:
    """A name that no other test uses, also not one of another run on the same server."""
    return f"test_{uuid.uuid4().hex[:12]}_{next(numbers)}"
