"""Codecs of Anthropic's messages and of counts: small bodies in this process, large ones in a worker."""

from __future__ import annotations

from collections.abc import Container

from adapters.ignored_fields import IgnoredFields
from adapters.offload.worker_queue import LARGE, parse, run
from adapters.requests import ChatRequest
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.native_chat import NativeChat, NativePayload
from adapters.wire.responses import requests as responses


async def translate(request: ChatRequest, ignored: IgnoredFields, reads: Container[str] = ()) -> None:
    """Translate a request of another protocol to a chat, and record the fields without effect, except those that the
    adapter `reads` by itself. Raises `CallerError`."""
    if not isinstance(request, NativeChat):
        return
    payload = request.payload
    if payload.chat is None and request.size >= LARGE:
        largest = max([memoryview(raw) for raw in payload.native.values()], key=len)
        payload.chat, payload.left_out, payload.marks = await parse(largest, NativePayload.translated, payload)
    payload.report(ignored, reads)


async def estimate(request: ChatRequest, size: int) -> int:
    """Estimate the tokens of a prompt whose request has `size` bytes. Raises `CallerError`."""
    return await run(size, anthropic.estimate, anthropic.estimated_fields(request))


def decode_response_count(body: bytes) -> TokenCount:
    """Decode the request for a token count of a Response's input. Raises `CallerError`."""
    return anthropic.count_of(responses.decode(body)[0])
