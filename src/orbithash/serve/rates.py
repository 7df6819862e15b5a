"""How often each client may ask: a bucket of tokens for each, filled at a steady rate."""

import ipaddress
import time
from collections.abc import Callable

from orbithash.serve.settings import is_loopback

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
