"""Servers that listen on a real port, in a thread of the test process."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orbithash.index import Index, open_index
from orbithash.serve.settings import ServeSettings
from served_indexes import NO_RATE_LIMIT, create_app, encoder_or_none


class LiveServer:
    """A server in a thread; `stop` does what SIGTERM does to a process."""

    def __init__(self, index: Index, settings: ServeSettings) -> None:
        from orbithash.serve.server import address_of, create_server, listen

        app = create_app(index, encoder_or_none(index), settings)
        self._socket = listen("127.0.0.1", 0)
        self.address = address_of(self._socket)
        self.port = self._socket.getsockname()[1]
        self._server = create_server(app, settings)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True

    @property
    def n_connections(self) -> int:
        return len(self._server.server_state.connections)

    @property
    def n_requests(self) -> int:
        """Requests whose headers have arrived and whose responses are not complete."""
        return len(self._server.server_state.tasks)

    def join(self) -> None:
        self._thread.join(timeout=600)
        assert not self._thread.is_alive()
        self._socket.close()


@contextmanager
def live_server(index: Path | Index, settings: ServeSettings | None = None) -> Iterator[LiveServer]:
    opened = open_index(index) if isinstance(index, Path) else index
    server = LiveServer(opened, settings or ServeSettings(limits=NO_RATE_LIMIT))
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server.join()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600  # only reached if the test fails
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
