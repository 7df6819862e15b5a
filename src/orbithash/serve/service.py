"""The served index with its encoder: encoding and searching in worker pools."""

import base64
import binascii
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8
from pydantic_core import to_json

from orbithash.codes import code_bytes, pack
from orbithash.encoders import Encoder
from orbithash.index import Index, Where
from orbithash.retrieval.query import (
    DEFAULT_K,
    Query,
    Result,
    StoredItem,
    by_embedding,
    code_of,
    find,
    nearest_distance,
)
from orbithash.serve.error_responses import UnprocessableError
from orbithash.serve.images import (
    ThumbnailCache,
    declared_pixels,
    decode_upload,
    display_name,
    image_file,
)
from orbithash.serve.metrics import Metrics
from orbithash.serve.schemas import (
    CodeInput,
    Hit,
    Item,
    QueryInfo,
    SearchRequest,
    SearchResponse,
    Timing,
)
from orbithash.serve.settings import ServeSettings
from orbithash.serve.workers import WorkerPool

if TYPE_CHECKING:
    from orbithash.encoders import ImageEncoder

Code = UInt8[np.ndarray, " bytes"]
Embedding = Float[np.ndarray, " bits"]

# More threads would only compete: what searches compiled code uses all cores by itself.
N_SEARCH_THREADS, N_IMAGE_THREADS = 2, 2
MAX_QUEUED_GROUPS = 4  # requests for groups of near-duplicates that wait
NO_TIME = Timing(encoding=0.0, searching=0.0)
REQUEST_PIXELS_FACTOR = 2  # pixels of all images of a request, in multiples of the limit of one
PIECE_HITS = 1000  # of searches that are done together; they take some hundredths of a second


class Service:
    """One index, its encoder, and a worker pool for each kind of work.

    Queues are unbounded except for encoding: the middleware limits the requests in flight, but one
    request can bring many images, and each takes long. Clients take turns in every pool; long work
    is done in pieces, an image or some searches each, so that a turn is short.
    """

    def __init__(
        self,
        index: Index,
        encoder: Encoder | None,
        settings: ServeSettings,
        metrics: Metrics,
    ) -> None:
        self.index, self.settings, self.metrics = index, settings, metrics
        self.encoder = None if encoder is None else image_encoder(encoder)
        self.thumbnails = ThumbnailCache()
        self.search_pool = WorkerPool("search", n_threads=N_SEARCH_THREADS)
        self.image_pool = WorkerPool("images", n_threads=N_IMAGE_THREADS)
        # One thread, so that two additions never get the same ids. Writes may wait long for other
        # processes; searches must not wait with them.
        self.write_pool = WorkerPool("writes", n_threads=1)
        self.statistics_pool = WorkerPool("statistics", n_threads=1)
        # One at a time: finding groups uses all cores.
        self.duplicates_pool = WorkerPool("duplicates", n_threads=1, max_queued=MAX_QUEUED_GROUPS)
        self.readiness_pool = WorkerPool("readiness", n_threads=1, max_queued=0)
        # One thread: the network itself uses all cores.
        self.encoding_pool = WorkerPool(
            "encoding", n_threads=1, max_queued=settings.limits.encoding_queue
        )

    def close(self) -> None:
        """Finish running work, then close the index."""
        for pool in (
            self.encoding_pool,
            self.search_pool,
            self.write_pool,
            self.image_pool,
            self.statistics_pool,
            self.duplicates_pool,
            self.readiness_pool,
        ):
            pool.close()
        self.index.close()

    async def search(self, requests: Sequence[SearchRequest]) -> list[bytes]:
        """Search for each request; return the responses as JSON."""
        start = time.perf_counter()
        n_hits = [self._max_hits(request.k, request.radius) for request in requests]
        await self._check_cost(n_hits, [request.labels for request in requests])
        embeddings = await self._embeddings_of(requests)
        codes = [parse_code(request, self.index.n_bits) for request in requests]
        queries = [
            Query(code, request.id, k, request.radius, label_filter(request.labels))
            for k, request, code in zip(n_hits, requests, codes, strict=True)
        ]
        queries = [
            query
            if embedding is None
            else by_embedding(query, embedding, symmetric=request.symmetric)
            for query, embedding, request in zip(queries, embeddings, requests, strict=True)
        ]
        return await self._find(queries, start)

    async def search_by_image(
        self,
        image: bytes,
        *,
        k: int | None,
        radius: int | None,
        labels: Sequence[str],
        symmetric: bool,
    ) -> bytes:
        """Search by an uploaded image file; return the response as JSON."""
        start = time.perf_counter()
        n_hits = self._max_hits(k, radius)
        (embedding,) = await self.embed_images([image])
        query = Query(None, None, n_hits, radius, label_filter(labels))
        (response,) = await self._find([by_embedding(query, embedding, symmetric=symmetric)], start)
        return response

    async def codes_of(self, inputs: Sequence[CodeInput]) -> list[Code | None]:
        """Return the code of each input; None if it has neither a code nor an image."""
        embeddings = await self._embeddings_of(inputs)
        return [
            code_of(embedding) if embedding is not None else parse_code(each, self.index.n_bits)
            for each, embedding in zip(inputs, embeddings, strict=True)
        ]

    async def embed_images(self, images: Sequence[bytes | str]) -> list[Embedding]:
        """Return the embeddings of image files, given as bytes or in base64."""
        if not images:
            return []
        if self.encoder is None:
            raise UnprocessableError(
                "this index has no encoder for images; search by id, or give code or bits"
            )
        embed = partial(self._embed, self.encoder, Spent())
        return await self.encoding_pool.run_each(embed, images)

    async def _embeddings_of(self, inputs: Sequence[CodeInput]) -> list[Embedding | None]:
        """Return the embedding of each input that has one, or an image."""
        images = [each.image for each in inputs if each.image is not None]
        embedded = iter(await self.embed_images(images))
        return [
            next(embedded) if each.image is not None else given_embedding(each, self.index.n_bits)
            for each in inputs
        ]

    def item(self, stored: StoredItem) -> Item:
        """Return the public view of an item, which does not reveal where its file is."""
        return Item(
            id=stored.id,
            name=display_name(stored.metadata),
            labels=list(stored.metadata.labels),
            code=stored.code.tobytes().hex(),
            fields=dict(stored.metadata.fields),
            picture=image_file(stored.metadata, self.settings.images) is not None,
        )

    def _max_hits(self, k: int | None, radius: int | None) -> int:
        """Return `k` or its default; without `k`, only the server's limit bounds a radius."""
        max_k, n_bits = self.settings.limits.k, self.index.n_bits
        if radius is not None and radius > n_bits:
            raise UnprocessableError(f"radius is {radius}; the codes have {n_bits} bits")
        if k is None:
            return max_k if radius is not None else min(DEFAULT_K, max_k)
        if k > max_k:
            raise UnprocessableError(f"k is {k}; at most {max_k} is allowed")
        return k

    async def _check_cost(self, n_hits: Sequence[int], labels: Sequence[Sequence[str]]) -> None:
        """Raise if the searches of one request would take too long together."""
        limits = self.settings.limits
        if len(n_hits) > 1 and sum(n_hits) > limits.request_hits:
            raise UnprocessableError(
                f"the searches may have {sum(n_hits):,} hits in total; at most "
                f"{limits.request_hits:,} are allowed in one request: send fewer searches at once, "
                "or give each a smaller k"
            )
        n_filters = len({tuple(each) for each in labels if each})
        if n_filters > 1:
            count = await self.search_pool.run(len, self.index)
            allowed = max(1, limits.filtered_items // max(1, count))
            if n_filters > allowed:
                raise UnprocessableError(
                    f"the searches have {n_filters} different lists of labels; at most {allowed} "
                    f"are allowed in one request to an index of {count:,} items: send fewer "
                    "searches at once"
                )

    def _embed(self, encoder: "ImageEncoder", spent: "Spent", image: bytes | str) -> Embedding:
        start, limits = time.perf_counter(), self.settings.limits
        max_pixels = REQUEST_PIXELS_FACTOR * limits.pixels
        content = decode_base64(image) if isinstance(image, str) else image
        # Many small files that declare large images would block the encoder for minutes.
        spent.pixels += declared_pixels(content)
        if spent.pixels > max_pixels:
            raise UnprocessableError(
                f"the images have more than {max_pixels:,} pixels in total; send fewer"
            )
        if spent.seconds > limits.encoding_seconds:
            raise UnprocessableError("the images take too long to encode; send fewer at once")
        decoded = decode_upload(content, at_least=encoder.view.resize, max_pixels=limits.pixels)
        embedding: Embedding = encoder.embed([decoded])[0]
        seconds = time.perf_counter() - start
        spent.seconds += seconds
        self.metrics.images_encoded.inc()
        self.metrics.encoding_seconds.inc(seconds)
        return embedding

    async def _find(self, queries: Sequence[Query], start: float) -> list[bytes]:
        encoded = time.perf_counter()
        timing = Timing(encoding=round(1e3 * (encoded - start), 3), searching=0.0)
        find_piece = partial(self._respond, timing, encoded)
        return list(chain(*await self.search_pool.run_each(find_piece, in_pieces(queries))))

    def _respond(self, timing: Timing, encoded: float, queries: Sequence[Query]) -> list[bytes]:
        results, count = find(self.index, queries), len(self.index)
        where = queries[0].where  # that of all of them
        n_with_labels = None if where is None else self.index.count(where)
        responses = [
            self._response(query, result, count, n_with_labels)
            for query, result in zip(queries, results, strict=True)
        ]
        timing.searching = round(1e3 * (time.perf_counter() - encoded), 3)
        for response in responses:
            response.took = timing
        # Here and not on the event loop, which other requests wait for.
        return [to_json(response) for response in responses]

    def _response(
        self, query: Query, result: Result, count: int, n_with_labels: int | None
    ) -> SearchResponse:
        item = None if result.item is None else self.item(result.item)
        labels = frozenset(item.labels if item else ())
        hits = [
            Hit(
                **self.item(stored).__dict__,
                rank=hit.rank,
                distance=hit.distance,
                hamming=hit.hamming,
                matches=not labels.isdisjoint(hit.labels) if labels else None,
            )
            for hit, stored in zip(result.hits, result.items, strict=True)
        ]
        return SearchResponse(
            query=QueryInfo(
                code=result.code.tobytes().hex(),
                embedding=None if query.embedding is None else query.embedding.tolist(),
                item=item,
            ),
            ranking=result.ranking,
            hits=hits,
            n_bits=self.index.n_bits,
            count=count,
            n_with_labels=n_with_labels,
            nearest_distance=None
            if hits or query.radius is None
            else nearest_distance(self.index, result.code, query.where, without=query.id),
            took=NO_TIME,  # set when the search is done
        )


@dataclass
class Spent:
    """What the images of one request have cost so far."""

    pixels: int = 0
    seconds: float = 0.0


def in_pieces(queries: Sequence[Query]) -> Iterator[list[Query]]:
    """Split queries into runs with one filter and some number of hits in total."""
    piece: list[Query] = []
    n_hits = 0
    for query in queries:
        n_hits += query.k or 0
        if piece and (n_hits > PIECE_HITS or query.where != piece[0].where):
            yield piece
            piece, n_hits = [], query.k or 0
        piece.append(query)
    yield piece


def image_encoder(encoder: Encoder) -> "ImageEncoder | None":
    """Return the encoder if it encodes images."""
    from orbithash.encoders import ImageEncoder  # with torch, which an index of codes needs not

    return encoder if isinstance(encoder, ImageEncoder) else None


def label_filter(labels: Sequence[str]) -> Where | None:
    return Where(labels=tuple(labels)) if labels else None


def given_embedding(given: CodeInput, n_bits: int) -> Embedding | None:
    """Return the embedding of a search; None if it has none."""
    numbers = given.embedding if isinstance(given, SearchRequest) else None
    if numbers is None:
        return None
    if len(numbers) != n_bits:
        raise UnprocessableError(
            f"got an embedding of {len(numbers)} numbers; codes here have {n_bits} bits"
        )
    return np.array(numbers)


def parse_code(given: CodeInput, n_bits: int) -> Code | None:
    """Return the code that `bits` or `code` spells out; None if neither is set."""
    if given.bits is not None:
        if len(given.bits) != n_bits:
            raise UnprocessableError(f"got {len(given.bits)} bits; codes here have {n_bits}")
        bits = np.frombuffer(given.bits.encode(), dtype=np.uint8) == ord("1")
        codes: Code = pack(bits[None])[0]
        return codes
    if given.code is None:
        return None
    code = bytes.fromhex(given.code)
    if len(code) != code_bytes(n_bits):
        raise UnprocessableError(
            f"got a code of {len(code)} bytes; {n_bits} bits need {code_bytes(n_bits)}"
        )
    n_padding = 8 * len(code) - n_bits
    if code[-1] & ((1 << n_padding) - 1):
        raise UnprocessableError(f"the last {n_padding} bits of a code of {n_bits} bits must be 0")
    return np.frombuffer(code, dtype=np.uint8)


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnprocessableError("image is not base64; encode the bytes of an image file") from None
