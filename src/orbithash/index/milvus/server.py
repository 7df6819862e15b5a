"""Requests to a Milvus server: timeouts, retries and errors. All requests are idempotent."""

import logging
import os
import time
from typing import Any

from orbithash.errors import MissingExtraError, ServerError

logger = logging.getLogger(__name__)

TIMEOUT = 30.0  # seconds per request
ATTEMPTS = 4
PAUSE = 0.5  # seconds before the second attempt, doubled before each further one
UNAVAILABLE = frozenset({1, 2, 4})  # Milvus's codes of a server that is down or not ready
TOKEN = "MILVUS_TOKEN"  # the environment variable with USER:PASSWORD or a token


class MilvusServer:
    """A connection to a server, by its address; the token is read from the environment."""

    def __init__(self, address: str) -> None:
        self.address, self._pymilvus = address, import_pymilvus()
        self._client: Any = None
        self._client = self._attempt(
            lambda: self._pymilvus.MilvusClient(
                address, token=os.environ.get(TOKEN, ""), timeout=TIMEOUT
            )
        )

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client; retry while the server is unavailable."""
        request = getattr(self._client, method)
        return self._attempt(lambda: request(*arguments, timeout=TIMEOUT, **options))

    def query(
        self,
        collection: str,
        condition: str,
        fields: list[str],
        limit: int | None = None,
        *,
        level: str = "Strong",
    ) -> list[Any]:
        """Return the rows that meet a condition; at the level Strong, after all earlier writes."""
        options = {} if limit is None else {"limit": limit}
        return list(
            self.call(
                "query",
                collection,
                filter=condition,
                output_fields=fields,
                consistency_level=level,
                **options,
            )
        )

    def has(self, collection: str) -> bool:
        return bool(self.call("has_collection", collection))

    def drop(self, collection: str) -> None:
        self.call("drop_collection", collection)

    def description(self, collection: str) -> str:
        return str(self.call("describe_collection", collection)["description"])

    def create(
        self,
        collection: str,
        *,
        description: str,
        integers: list[str],
        strings: dict[str, int],
        documents: list[str],
        vectors: dict[str, int],
    ) -> None:
        """Create a collection: the first integer is its key; strings give lengths, vectors bits."""
        kinds = self._pymilvus.DataType
        schema = self._pymilvus.MilvusClient.create_schema(
            auto_id=False, enable_dynamic_field=False, description=description
        )
        for name in integers:
            schema.add_field(name, kinds.INT64, is_primary=name == integers[0])
        for name, length in strings.items():
            schema.add_field(name, kinds.VARCHAR, max_length=length)
        for name in documents:
            schema.add_field(name, kinds.JSON)
        for name, n_bits in vectors.items():
            schema.add_field(name, kinds.BINARY_VECTOR, dim=n_bits)
        self.call("create_collection", collection, schema=schema, consistency_level="Strong")

    def index_type(self, collection: str) -> str | None:
        """Return Milvus's name of a collection's index type; None if it is not indexed yet."""
        names = self.call("list_indexes", collection)
        return (
            str(self.call("describe_index", collection, names[0])["index_type"]) if names else None
        )

    def make_searchable(self, collection: str, index_type: str, vector: str) -> None:
        """Load a collection, and index it first if its creator has died before that."""
        if self.index_type(collection) is None:
            parameters = self._pymilvus.MilvusClient.prepare_index_params()
            lists = {"nlist": 128} if "IVF" in index_type else {}
            parameters.add_index(vector, index_type=index_type, metric_type="HAMMING", params=lists)
            self.call("create_index", collection, parameters)
        self.call("load_collection", collection)

    def close(self) -> None:
        self._client.close()

    def _attempt(self, request: Any) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                return request()
            except self._pymilvus.MilvusException as error:
                if not self._is_unavailable(error):
                    raise ServerError(
                        f"Milvus at {self.address} refused: {first_line(error)}"
                    ) from error
                if attempt + 1 == ATTEMPTS:
                    raise ServerError(
                        f"no Milvus server answers at {self.address} ({first_line(error)}); "
                        "start it, or check host and port"
                    ) from error
                logger.warning("Milvus at %s is unavailable, trying again", self.address)
                time.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _is_unavailable(self, error: Any) -> bool:
        """Return whether to retry: not after errors of the client, which share the codes."""
        kinds = self._pymilvus.exceptions
        from_server = (
            self._pymilvus.MilvusException,
            kinds.ConnectError,
            kinds.MilvusUnavailableException,
        )
        unavailable = "unavailable" in str(error.message).lower()
        return unavailable or (error.code in UNAVAILABLE and type(error) in from_server)


def first_line(error: Any) -> str:
    return str(error.message).partition("\n")[0]


def import_pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError:
        raise MissingExtraError("milvus") from None
    # It logs every error with a traceback, besides raising it.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    return pymilvus
