"""How a server is set up: where it listens, who may do what, and how much of it."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orbithash.errors import InputError

KEY, READ_KEY = "ORBITHASH_KEY", "ORBITHASH_READ_KEY"  # environment variables
SHORTEST_KEY = 16  # characters; what can be guessed is no key


@dataclass(frozen=True)
class Limits:
    """What the server takes on; more than that is refused, not queued."""

    upload_bytes: int = 16 << 20  # of one request
    upload_seconds: float = 30.0  # for one request to arrive
    pixels: int = 50_000_000  # of one image; twice as many of all images of a request
    rate: float = 100.0  # requests per second of one client, on average; 0 is no limit
    burst_seconds: float = 5.0  # how much of the rate a client may use at once
    concurrency: int = 64  # requests that are worked on or wait, of all clients
    encoding_queue: int = 16  # requests whose images wait for the encoder
    encoding_seconds: float = 20.0  # after which no further image of a request is begun
    batch: int = 64  # searches or items in one request
    k: int = 1000


@dataclass(frozen=True)
class Keys:
    """Secrets from the environment: `write` may do everything, `read` may search."""

    write: str = field(default="", repr=False)
    read: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.write or self.read)


@dataclass(frozen=True)
class ServeSettings:
    """All that a server depends on besides the index."""

    host: str = "127.0.0.1"
    port: int = 8000
    keys: Keys = Keys()
    public: bool = False  # whether anyone who reaches the server may search
    behind_proxy: bool = False  # whether a proxy on this machine says who the client is
    images: Path | None = None  # where relative paths of items are looked up
    uploads: Path | None = None  # where images are kept that are added through the API
    limits: Limits = Limits()

    @property
    def reading_is_open(self) -> bool:
        return self.public or not self.keys


def keys_from(environment: Mapping[str, str]) -> Keys:
    """The keys that the environment holds; one that is too short to be safe is an error."""
    keys = Keys(write=environment.get(KEY, ""), read=environment.get(READ_KEY, ""))
    for name, key in ((KEY, keys.write), (READ_KEY, keys.read)):
        if key and (len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable()):
            raise InputError(
                f"{name} must be {SHORTEST_KEY} or more plain characters; make one with: "
                "python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return keys


def check_exposure(settings: ServeSettings) -> None:
    """Raise if others could reach a server that nothing protects, and nobody said they may."""
    is_private = is_loopback(settings.host) and not settings.behind_proxy
    if is_private or settings.keys or settings.public:
        return
    place = f"{settings.host} behind a proxy" if settings.behind_proxy else settings.host
    raise InputError(
        f"{place} can be reached from other machines, and no key is set: put one into "
        f"{KEY}, or add --public to let everyone search"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
