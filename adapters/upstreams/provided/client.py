"""The HTTP client of a pool whose lines are deferred to the provider's batches. Live requests are sent as usual."""

import asyncio
from typing import Any

from adapters.errors import BackendError
from adapters.http1.client import MAX_ANSWER, Client, ClientResponse
from adapters.http1.message import Headers
from adapters.types import Deadline
from adapters.upstreams.provided.deferral import DeferredRequest, ProvidedResult, line_pass

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
