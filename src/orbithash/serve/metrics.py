"""Prometheus metrics: requests, latencies, queues and rejections."""

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
LATENCY_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "orbithash_requests",
            "Requests with a response, rejected ones included.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "orbithash_request_seconds",
            "Time from the arrival of a request to the end of its response.",
            ("route",),
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "orbithash_requests_inside", "Requests in flight.", registry=self.registry
        )
        self.rejected_busy = Counter(
            "orbithash_requests_shed",
            "Requests rejected because too many were in flight.",
            registry=self.registry,
        )
        self.images_encoded = Counter(
            "orbithash_images_encoded", "Images encoded.", registry=self.registry
        )
        self.encoding_seconds = Counter(
            "orbithash_encoding_seconds",
            "Time spent decoding and encoding images.",
            registry=self.registry,
        )
        self.items = Gauge("orbithash_index_items", "Items in the index.", registry=self.registry)

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def record_request(self, scope: Scope, status: int, seconds: float) -> None:
        # The route's pattern, because there are as many paths as items. Some versions of FastAPI
        # include the prefix, others do not.
        route = getattr(scope.get("route"), "path", "none").removeprefix(API)
        # Clients can invent methods; each would be a new time series.
        is_known = scope.get("route") and scope["method"] in METHODS
        method = scope["method"] if is_known else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
