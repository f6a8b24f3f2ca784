"""Servers that know Responses, over a real socket."""

import json
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import BackendError, CallerError, CapacityError, TransportError
from adapters.http1.client import Client
from adapters.requests import ResponsesRequest
from adapters.types import Deadline
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.responses import requests as responses
from tests.adapters.http1.scripted import answers, scripted

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


CREATED = event("response.created", response={"id": "r", "output": []}) + event("response.in_progress")
DELTA = event("response.output_text.delta", delta="Hi")
USAGE = {"input_tokens": 3, "output_tokens": 2}
COMPLETED = event("response.completed", response={"output": [], "usage": USAGE})
FAILED = event("response.failed", response={"error": {"code": "server_error", "message": "x"}})


def streamed(*events: bytes) -> bytes:
    body = b"".join(events)
    return HEAD % (b"text/event-stream", len(body)) + body


def whole(**fields: Any) -> bytes:
    body = json.dumps(fields).encode()
    return HEAD % (b"application/json", len(body)) + body


def request(**fields: Any) -> ResponsesRequest:
    return responses.decode_native(json.dumps({"model": "chat", "input": "hi", **fields}).encode())


async def respond(answer: bytes, response_request: ResponsesRequest) -> Any:
    async with scripted(answers(answer)) as upstream:
        client = Client(upstream.url)
        adapter = OpenAIAdapter(client, model="theirs")
        try:
            reply = await adapter.call(response_request, Call(Deadline(client.now() + 30, 30, 30)))
            if reply.body is None:
                pieces = [piece async for piece in reply]
                return b"".join(pieces), reply.usage
            return reply.body, reply.usage
        finally:
            await adapter.aclose()


async def test_a_whole_response_passes_and_reports_its_usage() -> None:
    answer = whole(id="r", output=[], usage=USAGE, status="completed")
    body, usage = await respond(answer, request())
    assert answer.endswith(body)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (3, 2, True)


async def test_a_stream_passes_as_it_is() -> None:
    body, usage = await respond(streamed(CREATED, DELTA, COMPLETED), request(stream=True))
    assert body == CREATED + DELTA + COMPLETED
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (3, 2, True)
    assert usage.bytes == len(body)


@pytest.mark.parametrize(
    ("answer", "stream", "error"),
    [
        (whole(id="r", status="failed", error={"code": "server_error", "message": "x"}), False, BackendError),
        (whole(id="r", error={"code": "rate_limit_exceeded"}, output=[]), False, CapacityError),
        (whole(id="r"), False, BackendError),
        (whole(output=7), False, BackendError),
        # Before the model's first token, the gateway may retry on another server.
        (streamed(CREATED, FAILED), True, BackendError),
        (streamed(CREATED, event("error", code="invalid_prompt", message="No.")), True, CallerError),
        (streamed(CREATED, b"data: nonsense\n\n"), True, BackendError),
        (streamed(CREATED), True, TransportError),
        (streamed(b"data: {}\n\n"), True, BackendError),
    ],
)
async def test_a_failure_before_the_first_word(answer: bytes, stream: bool, error: type[Exception]) -> None:
    with pytest.raises(error):
        await respond(answer, request(stream=stream))


async def test_a_failure_after_it_is_forwarded_and_then_raised() -> None:
    async with scripted(answers(streamed(CREATED, DELTA, FAILED, DELTA))) as upstream:
        client = Client(upstream.url)
        answer = await OpenAIAdapter(client).call(request(stream=True), Call(Deadline(client.now() + 30, 30, 30)))
        assert await answer.__anext__() == CREATED + DELTA + FAILED
        with pytest.raises(BackendError):
            await answer.__anext__()
        await client.aclose()
