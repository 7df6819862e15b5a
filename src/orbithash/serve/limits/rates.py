"""How often and how much at once each client may request."""

import ipaddress
import time
from collections import Counter
from collections.abc import Callable

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


MOST_CLIENTS = 10_000  # that are remembered; who is forgotten starts with a full bucket


class Rates:
    """Token buckets by client."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def wait(self, client: str) -> float:
        """Take a token; 0 if there was one, else the seconds until there is."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        # Taken out and put back at the end, so that the first are those not seen for longest.
        tokens, counted = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - counted) * self._rate)
        admitted = tokens >= 1.0
        self._buckets[client] = (tokens - 1.0 if admitted else tokens, now)
        if len(self._buckets) > MOST_CLIENTS:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if admitted else (1.0 - tokens) / self._rate


def network_of(address: str) -> str:
    """Who counts as one client: an IPv4 address, or the network that one IPv6 subscriber has.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1:2")
    ('192.0.2.7', '2001:db8::/64')
    """
    if ":" not in address or is_loopback(address):
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
