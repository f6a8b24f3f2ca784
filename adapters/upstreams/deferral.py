"""A pass of a line of a batch through the gateway, if its pool submits lines to the provider's own batches.

A line passes twice. In the first pass the request reaches the pool's HTTP client in the provider's form, and is
deferred there: it joins a batch of the provider. In the second pass the client returns the provider's result, as if
the server had just answered. Policies, limits, prices, codecs and records are therefore those of every request.
"""

import asyncio
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, NamedTuple

from adapters.errors import BackendError
from adapters.http1.client import MAX_ANSWER, Client, ClientResponse
from adapters.http1.message import Headers
from adapters.types import Deadline


class DeferredRequest(NamedTuple):
    """A request in the provider's form. `url` is the path of the provider's API."""

    pool: str
    url: str
    body: bytes
    key: str
    """A digest by which the second pass recognises the request."""

    @classmethod
    def of(cls, pool: str, url: str, body: bytes) -> "DeferredRequest":
        """The request with its digest. Hashing a large body takes milliseconds, and releases Python's lock."""
        hashed = blake2b(f"{pool}\0{url}\0".encode(), digest_size=12)
        hashed.update(body)
        return cls(pool, url, body, hashed.hexdigest())


class ProvidedResult(NamedTuple):
    """The provider's response to one request of a batch."""

    status: int
    body: bytes


class Deferred(BaseException):
    """The end of a first pass. As a cancellation, it passes all handlers of failures: nothing has failed, nothing is
    charged, and the exchange ends in a later pass."""


class LinePass:
    """One pass. `results` are those of the provider by the key of the request; each serves one call, or all calls if
    it `repeats`: then a failed result is final, and no retry submits the request again."""

    __slots__ = ("_repeats", "_results", "deferred")

    def __init__(self, results: dict[str, ProvidedResult] | None = None, *, repeats: bool = False) -> None:
        self._results = results or {}
        self._repeats = repeats
        self.deferred: DeferredRequest | None = None
        """The request that ended the pass."""

    def answer(self, request: DeferredRequest) -> ProvidedResult:
        """The provider's result. Raises `Deferred` without one."""
        result = self._results.get(request.key) if self._repeats else self._results.pop(request.key, None)
        if result is None:
            self.deferred = request
            raise Deferred
        return result


line_pass: ContextVar[LinePass | None] = ContextVar("line_pass", default=None)
"""The pass that runs in this context; None for every other request."""


# The HTTP client of a pool whose lines are deferred to the provider's batches. Live requests are sent as usual.

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages")
"""Paths that batches of providers support."""
LARGE = 1024 * 1024
_JSON = {b"content-type": b"application/json"}


class DeferringClient(Client):
    """A client that defers the requests of a `LinePass`."""

    def __init__(self, url: str, *, pool: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._pool = pool

    async def request(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: Deadline
    ) -> ClientResponse:
        running = line_pass.get()
        if running is not None and method == b"POST" and (url := url_of(target)) is not None:
            if len(body) < LARGE:
                deferred = DeferredRequest.of(self._pool, url, body)
            else:
                deferred = await asyncio.to_thread(DeferredRequest.of, self._pool, url, body)
            return ProvidedResponse(running.answer(deferred))
        return await super().request(method, target, fields, body, deadline)


def url_of(target: bytes) -> str | None:
    """The path in a batch for a path of the server; None if batches do not support it."""
    path = target.decode("latin-1")
    return next((url for url in URLS if path.endswith(url.removeprefix("/v1")) and "?" not in path), None)


class ProvidedResponse(ClientResponse):
    """A result of a provider's batch as the response of its server."""

    __slots__ = ("_body",)

    def __init__(self, result: ProvidedResult) -> None:
        self._exchange = None
        self.status = result.status
        self.headers = Headers(_JSON)
        self._body = result.body

    def take(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def read(self, limit: int | None = None) -> bytes:
        if len(self._body) > (limit or MAX_ANSWER):
            self.close()
            raise BackendError("The upstream's answer is too large.")
        return self.take()

    def close(self) -> None:
        self._body = b""
