"""Limits per client: requests or bytes per second, and bytes in use at once."""

import ipaddress
import time
from collections import Counter
from collections.abc import Callable

from starlette.types import Scope

from orbithash.serve.settings import is_loopback

CLIENT_DIVISOR = 4  # one client may use a quarter of a shared capacity
RESERVED_DIVISOR = 8  # loopback clients leave an eighth to others
MAX_CLIENTS = 10_000  # token buckets kept; a client that was dropped starts with a full one


class RateLimiter:
    """Token buckets, one per client."""

    def __init__(
        self, rate: float, *, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        # Tokens and the time they were counted at, least recently seen clients first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def acquire(self, client: str) -> float:
        """Take a token and return 0, or return the seconds until the next one is available."""
        if self._rate <= 0:
            return 0.0
        tokens = self._tokens(client)
        is_allowed = tokens >= 1.0
        self._set(client, tokens - 1.0 if is_allowed else tokens)
        return 0.0 if is_allowed else (1.0 - tokens) / self._rate

    def spend(self, client: str, n: float) -> float:
        """Take tokens that are used already; return the seconds until none is owed."""
        tokens = self._tokens(client) - n
        self._set(client, tokens)
        return max(0.0, -tokens / self._rate)

    def _tokens(self, client: str) -> float:
        tokens, counted_at = self._buckets.get(client, (self._burst, 0.0))
        return min(self._burst, tokens + (self._clock() - counted_at) * self._rate)

    def _set(self, client: str, tokens: float) -> None:
        self._buckets.pop(client, None)
        self._buckets[client] = (tokens, self._clock())
        if len(self._buckets) > MAX_CLIENTS:
            del self._buckets[next(iter(self._buckets))]


def largest_share(client: str, capacity: int) -> int:
    """Return how much of a capacity one client may use: a quarter.

    Loopback clients may use seven eighths: a proxy without --behind-proxy sends everyone's requests
    from there.

    >>> largest_share("192.0.2.1", 64), largest_share("127.0.0.1", 64)
    (16, 56)
    """
    if is_loopback(client):
        return capacity - capacity // RESERVED_DIVISOR
    return max(1, capacity // CLIENT_DIVISOR)


class ConcurrencyLimiter:
    """Capacity in bytes that clients share, each at most its largest share."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use: Counter[str] = Counter()
        self._total = 0

    def try_acquire(self, client: str, n: int = 1) -> bool:
        """Reserve `n` units if the client and the total stay within their limits."""
        allowed = largest_share(client, self._capacity)
        if self._total + n > self._capacity or self._in_use[client] + n > allowed:
            return False
        self._in_use[client] += n
        self._total += n
        return True

    def release(self, client: str, n: int = 1) -> None:
        self._total -= n
        self._in_use[client] -= n
        if self._in_use[client] <= 0:
            del self._in_use[client]


def client_network(scope: Scope) -> str:
    """Return the network that counts as one client of a request."""
    host, *_ = scope.get("client") or ("",)
    return network_of(host)


def network_of(address: str) -> str:
    """Return an IPv4 address itself, and the /64 network of an IPv6 address.

    One IPv6 subscriber has a whole /64.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1:2")
    ('192.0.2.7', '2001:db8::/64')
    """
    if ":" not in address or is_loopback(address):
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
