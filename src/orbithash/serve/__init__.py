"""HTTP server for an index: an API and a search page."""

from orbithash.serve.settings import Keys, Limits, ServeSettings

__all__ = ["Keys", "Limits", "ServeSettings"]
