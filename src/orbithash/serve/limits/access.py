"""Who may do what: keys, the cookie of a browser, requests of other sites, and security headers."""

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from orbithash.serve.settings import KEY, Keys, ServeSettings, is_loopback

PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",  # of images that have not been sent yet
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)

SECURITY_HEADERS = [
    (b"content-security-policy", PAGE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]

NOT_KEPT = (b"cache-control", b"no-store")  # of all that does not say for how long it holds


API = "/api/v1"
# What anyone may fetch: it tells nothing of the index.
OPEN = frozenset({"/", "/health", "/ready", "/openapi.json", f"{API}/session"})
PAGE = "/page/"
OURS = ("same-origin", "none")  # what a browser says of a request by our page, or by its user


def refusal(
    method: str, path: str, headers: Headers, settings: ServeSettings
) -> tuple[int, str] | None:
    """Status and sentence for a request that may not be answered, or None."""
    if not is_expected_host(headers.get("host", ""), settings):
        return 421, "this server is for this machine alone; use http://127.0.0.1 or localhost"
    if method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") not in OURS:
        return 403, "pages of other sites may not use this server"
    if path in OPEN or path.startswith(PAGE):
        return None
    writes = method in ("POST", "PUT", "PATCH", "DELETE") and path.startswith(f"{API}/items")
    if writes and not settings.keys.write:
        return 403, f"items cannot be changed here: the server was started without {KEY}"
    if writes:
        allowed = is_key(headers, settings.keys.write)
    else:
        allowed = settings.reading_is_open or may_read(headers, settings.keys)
    if allowed:
        return None
    return 401, "this needs a key: send it as Authorization: Bearer KEY"


def may_read(headers: Headers, keys: Keys) -> bool:
    by_key = [is_key(headers, key) for key in (keys.write, keys.read) if key]
    return any(by_key) or has_cookie(headers, keys)


def is_key(headers: Headers, key: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return bool(key) and scheme.lower() == "bearer" and same(given.strip(), key)


def same(given: str, expected: str) -> bool:
    """Compared in a time that tells nothing of how much of it is right."""
    return hmac.compare_digest(given.encode(), expected.encode())


def cookie_of(keys: Keys) -> str:
    """What a browser keeps instead of the key: it reads, does not write, and ends with the key."""
    secret = f"{keys.write}\n{keys.read}".encode()
    return hmac.new(secret, b"a browser that may read", hashlib.sha256).hexdigest()


def cookie_name(keys: Keys) -> str:
    """Another for other keys: cookies are shared by all ports of a host."""
    return "orbithash-" + hashlib.sha256(cookie_of(keys).encode()).hexdigest()[:8]


def has_cookie(headers: Headers, keys: Keys) -> bool:
    given = cookie_parser(headers.get("cookie", "")).get(cookie_name(keys), "")
    return same(given, cookie_of(keys))


def is_expected_host(host: str, settings: ServeSettings) -> bool:
    """Whether the browser meant this server.

    A page elsewhere can point a name of its own at 127.0.0.1, and then read what only this machine
    should; but the browser still says that name.
    """
    if settings.behind_proxy or not is_loopback(settings.host):
        return True
    return is_loopback(host.rpartition("]")[0].lstrip("[") or host.partition(":")[0])
