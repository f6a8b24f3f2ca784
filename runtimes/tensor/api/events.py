"""Responses of a model as server-sent events: JSON objects, an error among them, and no mark at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from adapters.errors import InferenceError
from adapters.http1.message import Response
from adapters.wire.oip import responses as oip_responses
from runtimes.tensor.nested import Computed

_FIELDS = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


Encode = Callable[[Computed], Awaitable[bytes]]


class Events:
    """The body of an answer. The status is sent with the first response, so a later failure is an event."""

    def __init__(self, responses: AsyncGenerator[Computed, None], encode: Encode, first: bytes | None) -> None:
        self._responses = responses
        self._encode = encode
        self._first = first
        self._over = first is None

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._over:
            raise StopAsyncIteration
        try:
            return _event(await self._encode(await anext(self._responses)))
        except InferenceError as error:
            self._over = True
            return _event(oip_responses.encode_error(error.message))

    async def aclose(self) -> None:
        await self._responses.aclose()


async def answer(responses: AsyncGenerator[Computed, None], encode: Encode) -> Response:
    """Wait for the first response: an earlier failure has its own status."""
    try:
        computed = await anext(responses, None)
        first = None if computed is None else _event(await encode(computed))
    except BaseException:
        await responses.aclose()
        raise
    return Response(200, _FIELDS, Events(responses, encode, first))


def _event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data
