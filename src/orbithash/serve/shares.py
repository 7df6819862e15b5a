"""How much of what is scarce one client may hold, and all clients together."""

from collections import Counter

from orbithash.serve.settings import is_loopback

PART = 4  # one client gets a quarter at most


class Shares:
    """Places, or bytes, that are taken and given back.

    This machine's own requests are limited only by what there is: a proxy without --behind-proxy
    asks for everyone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self.n = 0

    def take(self, client: str, n: int = 1) -> bool:
        """Whether there was enough left, which is the client's now."""
        most = self._most if is_loopback(client) else max(1, self._most // PART)
        if self.n + n > self._most or self._held[client] + n > most:
            return False
        self._held[client] += n
        self.n += n
        return True

    def give_back(self, client: str, n: int = 1) -> None:
        self.n -= n
        self._held[client] -= n
        if self._held[client] <= 0:
            del self._held[client]
