"""Access control: API keys, the session cookie, cross-site requests, and security headers."""

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser

from orbithash.serve.settings import WRITE_KEY_VARIABLE, Keys, ServeSettings, is_loopback

API = "/api/v1"  # prefix of the paths
# These paths reveal nothing about the index.
OPEN_PATHS = frozenset({"/", "/docs", "/health", "/ready", "/openapi.json", f"{API}/session"})
PAGE_PREFIX = "/page/"  # static files of the search page
# Allowed values of Sec-Fetch-Site: our own page, or an address that the user typed.
TRUSTED_SITES = ("same-origin", "none")

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",  # previews of uploads
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
SECURITY_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
SESSION_LABEL = b"a browser that may read"  # domain separation: the message of the cookie's HMAC
NO_STORE = (b"cache-control", b"no-store")  # for responses without a cache-control header


def check_access(method: str, path: str, headers: Headers, settings: ServeSettings) -> None:
    """Raise `HTTPException` if a request is not allowed: 421, 403 or 401."""
    if not is_expected_host(headers.get("host", ""), settings):
        raise HTTPException(
            421,
            "unexpected Host header: this server serves this machine only; "
            "use http://127.0.0.1 or localhost",
        )
    # Clients that are not browsers send no Sec-Fetch-Site, and are allowed.
    if method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") not in TRUSTED_SITES:
        raise HTTPException(403, "requests from other sites are not allowed")
    if path in OPEN_PATHS or path.startswith(PAGE_PREFIX):
        return
    # Only items can be changed. Searches are POSTs too, but read.
    is_write = method in ("POST", "PUT", "PATCH", "DELETE") and path.startswith(f"{API}/items")
    if is_write and not settings.keys.write:
        raise HTTPException(
            403, f"items cannot be changed: the server was started without {WRITE_KEY_VARIABLE}"
        )
    if is_write:
        is_allowed = has_key(headers, settings.keys.write)
    else:
        # Without keys everyone may read, and the session cookie, then a constant, is not checked.
        is_allowed = settings.allows_anonymous_read or may_read(headers, settings.keys)
    if not is_allowed:
        raise HTTPException(
            401,
            "a key is required: send it as Authorization: Bearer KEY",
            {"WWW-Authenticate": "Bearer"},
        )


def may_read(headers: Headers, keys: Keys) -> bool:
    """Return whether a request has one of the keys or the session cookie."""
    matches = [has_key(headers, key) for key in (keys.write, keys.read) if key]
    return any(matches) or has_session(headers, keys)


def has_key(headers: Headers, key: str) -> bool:
    scheme, _, sent = headers.get("authorization", "").partition(" ")
    return bool(key) and scheme.lower() == "bearer" and equal_secrets(sent.strip(), key)


def equal_secrets(sent: str, expected: str) -> bool:
    """Compare in constant time, so that timing does not reveal a partial match."""
    return hmac.compare_digest(sent.encode(), expected.encode())


def has_session(headers: Headers, keys: Keys) -> bool:
    sent = cookie_parser(headers.get("cookie", "")).get(session_cookie_name(keys), "")
    return equal_secrets(sent, session_cookie(keys))


def session_cookie(keys: Keys) -> str:
    """Return the cookie that a browser stores instead of a key.

    It allows reading but not writing, and becomes invalid when a key changes.
    """
    secret = f"{keys.write}\n{keys.read}".encode()
    return hmac.new(secret, SESSION_LABEL, hashlib.sha256).hexdigest()


def session_cookie_name(keys: Keys) -> str:
    """Return a name that depends on the keys, because all ports of a host share cookies."""
    return "orbithash-" + hashlib.sha256(session_cookie(keys).encode()).hexdigest()[:8]


def is_expected_host(host: str, settings: ServeSettings) -> bool:
    """Return whether the Host header is a loopback name; protects against DNS rebinding.

    Another site can point its own name at 127.0.0.1 to read from a local server, but the browser
    still sends that name. Behind a proxy or on a public address, the server's names are not known,
    and every name is accepted.
    """
    if settings.behind_proxy or not is_loopback(settings.host):
        return True
    return is_loopback(host_without_port(host))


def host_without_port(host: str) -> str:
    """Return the name or address in a Host header.

    >>> host_without_port("localhost:8000"), host_without_port("[::1]:8000")
    ('localhost', '::1')
    """
    ipv6_address = host.rpartition("]")[0].lstrip("[")
    return ipv6_address or host.partition(":")[0]
