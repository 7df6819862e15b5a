"""The index and its encoder at work: what the routes ask for, done in threads."""

import base64
import binascii
import time
from collections.abc import Sequence

import numpy as np

from orbithash.codes import code_bytes, pack
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.index import Index, Metadata
from orbithash.serve.metrics import Metrics
from orbithash.serve.pictures import Thumbnails, decode_upload, file_of, name_of, pixels_of
from orbithash.serve.problems import RefusedError
from orbithash.serve.questions import Question, Reply, ask
from orbithash.serve.readiness import Readiness
from orbithash.serve.schemas import Answer, Coded, Hit, Item, Query, SearchRequest, Took
from orbithash.serve.settings import ServeSettings
from orbithash.serve.statistics import KeptStatistics
from orbithash.serve.work import Workers

N_SEARCHING, N_SHOWING = 4, 2  # threads
MANY = 1 << 30
TOGETHER = 2  # times the pixels of one image, in all images of a request


class Service:
    """One index that is served."""

    def __init__(
        self,
        index: Index,
        encoder: FeatureEncoder | ImageEncoder | None,
        settings: ServeSettings,
        metrics: Metrics,
    ) -> None:
        self.index, self.settings, self.metrics = index, settings, metrics
        self.encoder = encoder if isinstance(encoder, ImageEncoder) else None
        self.statistics = KeptStatistics(index)
        self.thumbnails = Thumbnails()
        self.readiness = Readiness(index, metrics)
        # What may wait here is limited by how many requests are let in at all. Images are another
        # matter: each takes long, and one request can bring many.
        self.searching = Workers("searching", n_threads=N_SEARCHING, n_waiting=MANY)
        self.showing = Workers("showing", n_threads=N_SHOWING, n_waiting=MANY)
        # One thread, so that new ids are taken and stored by one at a time; they may wait long for
        # other processes, and searches must not wait with them.
        self.writing = Workers("writing", n_threads=1, n_waiting=MANY)
        self.looking = Workers("looking", n_threads=1, n_waiting=MANY)
        # One thread: the network uses all cores by itself.
        self.encoding = Workers("encoding", n_threads=1, n_waiting=settings.limits.encoding_queue)

    def close(self) -> None:
        """Finish what was accepted, then let go of the index."""
        for workers in (self.encoding, self.searching, self.writing, self.showing, self.looking):
            workers.close()
        self.readiness.close()
        self.index.close()

    async def answer(self, requests: Sequence[SearchRequest]) -> list[Answer]:
        """What the index finds for each request."""
        began = time.perf_counter()
        for request in requests:
            self._check(request)
        codes = await self.codes_of(requests)
        encoded = time.perf_counter()
        questions = [
            Question(request.k, request.radius, tuple(request.labels), request.id, code)
            for request, code in zip(requests, codes, strict=True)
        ]
        answers = await self.searching.run(self._found, questions)
        took = Took(
            encoding=round(1e3 * (encoded - began), 3),
            searching=round(1e3 * (time.perf_counter() - encoded), 3),
        )
        for answer in answers:
            answer.took = took
        return answers

    async def answer_image(
        self, image: bytes, *, k: int, radius: int | None, labels: list[str]
    ) -> Answer:
        """What the index finds for an image that was uploaded."""
        began = time.perf_counter()
        (code,) = await self.encode([image])
        encoding = 1e3 * (time.perf_counter() - began)
        request = SearchRequest(code=code.hex(), k=k, radius=radius, labels=labels)
        (answer,) = await self.answer([request])
        answer.took.encoding = round(encoding, 3)
        return answer

    async def codes_of(self, requests: Sequence[Coded]) -> list[bytes]:
        """The code of each, encoded, as it was given, or nothing if it is given by an id."""
        images = [request.image for request in requests if request.image is not None]
        encoded = iter(await self.encode(images))
        return [
            next(encoded) if request.image is not None else self._given(request)
            for request in requests
        ]

    async def encode(self, images: Sequence[bytes | str]) -> list[bytes]:
        """The codes of image files, given as they are or in base64."""
        if not images:
            return []
        if self.encoder is None:
            raise RefusedError(
                "this index has no encoder for images; search by id, or give code or bits"
            )
        return await self.encoding.run(self._encode, self.encoder, list(images))

    def _encode(self, encoder: ImageEncoder, images: list[bytes | str]) -> list[bytes]:
        began, largest, n_pixels = time.perf_counter(), self.settings.limits.pixels, 0
        codes = []
        for image in images:  # one after the other, for a batch of large ones would fill memory
            content = from_base64(image) if isinstance(image, str) else image
            # Many small files that claim much would keep everyone else waiting for minutes.
            n_pixels += pixels_of(content)
            if n_pixels > TOGETHER * largest:
                raise RefusedError(
                    f"the images have more than {TOGETHER * largest:,} pixels together; send fewer"
                )
            if time.perf_counter() - began > self.settings.limits.encoding_seconds:
                raise RefusedError("the images take too long to encode; send fewer at once")
            decoded = decode_upload(content, at_least=encoder.view.resize, max_pixels=largest)
            codes.append(encoder.encode([decoded])[0].tobytes())
        self.metrics.encoded.inc(len(images))
        self.metrics.encoding_seconds.inc(time.perf_counter() - began)
        return codes

    def _check(self, request: SearchRequest) -> None:
        largest = self.settings.limits.k
        if request.k > largest:
            raise RefusedError(f"k is {request.k}; at most {largest} are found at once")

    def _given(self, request: Coded) -> bytes:
        n_bits = self.index.n_bits
        if request.bits is not None:
            if len(request.bits) != n_bits:
                raise RefusedError(f"got {len(request.bits)} bits; codes here have {n_bits}")
            bits = np.frombuffer(request.bits.encode(), dtype=np.uint8) == ord("1")
            return pack(bits[None]).tobytes()
        if request.code is None:
            return b""
        code = bytes.fromhex(request.code)
        if len(code) != code_bytes(n_bits):
            raise RefusedError(
                f"got a code of {len(code)} bytes; {n_bits} bits need {code_bytes(n_bits)}"
            )
        unused = 8 * len(code) - n_bits
        if code[-1] & ((1 << unused) - 1):
            raise RefusedError(f"the last {unused} bits of a code of {n_bits} bits must be 0")
        return code

    def _found(self, questions: list[Question]) -> list[Answer]:
        return [
            self._answer(question, reply)
            for question, reply in zip(questions, ask(self.index, questions), strict=True)
        ]

    def _answer(self, question: Question, reply: Reply) -> Answer:
        item, labels = None, frozenset[str]()
        if question.id is not None and reply.metadata is not None:
            item = self.item(question.id, reply.code, reply.metadata)
            labels = frozenset(reply.metadata.labels)
        hits = [
            Hit(
                **self.item(found.id, found.code, found.metadata).__dict__,
                rank=rank,
                distance=found.distance,
                matches=not labels.isdisjoint(found.metadata.labels) if labels else None,
            )
            for rank, found in enumerate(reply.found, start=1)
        ]
        query = Query(code=reply.code.hex(), item=item)
        took = Took(encoding=0.0, searching=0.0)
        return Answer(query=query, hits=hits, n_bits=self.index.n_bits, took=took)

    def item(self, identifier: int, code: bytes, metadata: Metadata) -> Item:
        """What a client may know of an item: not where its file is."""
        return Item(
            id=identifier,
            name=name_of(metadata),
            labels=list(metadata.labels),
            code=code.hex(),
            fields=dict(metadata.fields),
            picture=file_of(metadata, self.settings.images) is not None,
        )


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError("image is not base64; send the bytes of an image file in it") from None
