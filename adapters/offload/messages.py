"""Codecs of Anthropic's messages and of counts: small bodies in this process, large ones in a worker."""

from __future__ import annotations

from msgspec import Raw

from adapters.offload.pool import LARGE, parse, run
from adapters.requests import ChatRequest, ModelRequest
from adapters.upstreams.anthropic.requests import MessagesRequest, TokenCount
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.openai.ignored_fields import IgnoredFields
from adapters.wire.responses import requests as responses


async def translate(request: ModelRequest) -> None:
    """Translate a large message into the fields of a chat. Raises `CallerError`."""
    if not isinstance(request, MessagesRequest) or request.is_translated or request.size < LARGE:
        return
    largest = max([memoryview(raw) for raw in request.native.values()], key=len)
    fields, hints = await parse(largest, _worded, _asked(request))
    request.hints.ignored[:] = hints.ignored
    request.translate(fields)


async def estimate(request: ChatRequest, size: int) -> int:
    """Estimate the tokens of a prompt whose request has `size` bytes. Raises `CallerError`."""
    return await run(size, anthropic.estimate, anthropic.estimated_fields(request))


def decode_response_count(body: bytes) -> TokenCount:
    """Decode the request for a token count of a Response's input. Raises `CallerError`."""
    return anthropic.count_of(responses.decode(body)[0])


def _worded(request: MessagesRequest) -> tuple[dict[str, Raw], IgnoredFields]:
    return request.fields, request.hints


def _asked(request: MessagesRequest) -> MessagesRequest:
    """A copy of a message with only the fields that its translation reads."""
    return MessagesRequest(
        model=request.model,
        native=request.native,
        fields={},
        chat=request.chat,
        stream=request.stream,
        added=request.added,
        hints=request.hints,
        prompt=request.prompt,
    )
