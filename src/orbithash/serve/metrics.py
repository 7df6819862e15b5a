"""What Prometheus is told: how many requests, how long they took, what waits, what is refused."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from starlette.types import Scope

from orbithash.serve.limits.access import API

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "orbithash_requests",
            "Requests that were answered, refused ones too.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "orbithash_request_seconds",
            "Time from a request's arrival to its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.inside = Gauge(
            "orbithash_requests_inside", "Requests under way.", registry=self.registry
        )
        self.shed = Counter(
            "orbithash_requests_shed",
            "Requests that were refused because too many were under way.",
            registry=self.registry,
        )
        self.encoded = Counter(
            "orbithash_images_encoded", "Images that were encoded.", registry=self.registry
        )
        self.encoding_seconds = Counter(
            "orbithash_encoding_seconds",
            "Time that decoding and encoding images took.",
            registry=self.registry,
        )
        self.items = Gauge("orbithash_index_items", "Items in the index.", registry=self.registry)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """A figure that is asked for when it is wanted."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        # The pattern of the path, not the path: there are as many paths as items. Some versions of
        # FastAPI give it with its prefix, others without.
        route = getattr(scope.get("route"), "path", "none").removeprefix(API)
        # A client may call its method anything.
        known = scope.get("route") and scope["method"] in METHODS
        method = scope["method"] if known else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
