"""Server settings: address, keys and limits."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orbithash.errors import InputError

# Environment variables.
WRITE_KEY_VARIABLE = "ORBITHASH_KEY"
READ_KEY_VARIABLE = "ORBITHASH_READ_KEY"
MIN_KEY_LENGTH = 16  # characters; a shorter key could be guessed


@dataclass(frozen=True)
class Limits:
    """Limits of the server; requests beyond them are rejected, not queued."""

    upload_bytes: int = 16 << 20  # per request
    upload_seconds: float = 30.0  # for a request body to arrive
    pixels: int = 50_000_000  # per image; twice as many for all images of a request
    rate: float = 100.0  # requests per second and client, on average; 0: unlimited
    burst_seconds: float = 5.0  # seconds' worth of the rate that a client may use at once
    concurrency: int = 64  # requests in flight, of all clients
    encoding_queue: int = 16  # requests whose images wait for the encoder
    encoding_seconds: float = 20.0  # per request; after that no further image is started
    batch: int = 64  # searches or items per request
    k: int = 1000  # hits per search
    request_hits: int = 10_000  # of all searches of a request, by their k
    filtered_items: int = 10_000_000  # different lists of labels of a request, times items


@dataclass(frozen=True)
class Keys:
    """API keys from the environment: `write` allows everything, `read` allows searching."""

    write: str = field(default="", repr=False)
    read: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.write or self.read)


@dataclass(frozen=True)
class ServeSettings:
    """Everything a server depends on besides the index and its encoder."""

    host: str = "127.0.0.1"
    port: int = 8000
    keys: Keys = Keys()
    public: bool = False  # searching needs no key
    behind_proxy: bool = False  # trust X-Forwarded-For from a proxy on this machine
    images: Path | None = None  # folder that relative paths of items refer to
    uploads: Path | None = None  # folder for images added through the API
    limits: Limits = Limits()

    @property
    def allows_anonymous_read(self) -> bool:
        return self.public or not self.keys


def keys_from(environment: Mapping[str, str]) -> Keys:
    """Read the keys from environment variables; a key too short to be safe is an error."""
    keys = Keys(
        write=environment.get(WRITE_KEY_VARIABLE, ""), read=environment.get(READ_KEY_VARIABLE, "")
    )
    for name, key in ((WRITE_KEY_VARIABLE, keys.write), (READ_KEY_VARIABLE, keys.read)):
        if key and (len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable()):
            raise InputError(
                f"{name} must have at least {MIN_KEY_LENGTH} characters, all printable ASCII; "
                "create one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return keys


def check_exposure(settings: ServeSettings) -> None:
    """Raise if other machines could reach the server without a key and without --public."""
    is_private = is_loopback(settings.host) and not settings.behind_proxy
    if is_private or settings.keys or settings.public:
        return
    address = f"{settings.host} behind a proxy" if settings.behind_proxy else settings.host
    raise InputError(
        f"{address} can be reached from other machines, and no key is set: set "
        f"{WRITE_KEY_VARIABLE}, or add --public to let everyone search"
    )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
