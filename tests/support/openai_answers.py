"""Answers of servers of OpenAI's family, byte by byte, and adapters that receive them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.base import Answer
from adapters.call import Call
from adapters.http1.client import Client
from adapters.requests import ChatRequest, GenerateRequest
from adapters.types import Deadline
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.openai import chat as wire
from tests.adapters.http1.scripted import Peer, Play, ReceivedRequest, Upstream, answers, scripted

LONG = 10.0
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
BODY = json.dumps({"id": "1", "choices": [{"index": 0}], "usage": USAGE}).encode()


def chunk(text: str, **fields: Any) -> bytes:
    """One event of a stream, without its end."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}], **fields}).encode()


A, B = chunk("a"), chunk("b")
ONLY_USAGE = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode()
DONE = b"data: [DONE]"
ERROR = b'data: {"error": {"message": "CUDA out of memory at 10.0.0.5", "code": 500}}'


def http(body: bytes, content_type: str = "application/json", status: int = 200, *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def piece(*events: bytes) -> bytes:
    """Events in one HTTP chunk."""
    data = b"".join([event + b"\n\n" for event in events])
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def stream(*events: bytes) -> bytes:
    """A whole streamed answer, one event a chunk."""
    return HEAD + b"".join([piece(event) for event in events]) + END


def chat(**fields: Any) -> ChatRequest:
    messages = [{"role": "user", "content": "hi"}]
    return wire.decode_chat(json.dumps({"model": "m", "messages": messages, **fields}).encode())


def within(*, total: float = LONG, first_byte: float = LONG, idle: float = LONG) -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + total, first_byte, idle), "id-1")


@asynccontextmanager
async def adapting(play: Play, **options: Any) -> AsyncIterator[tuple[OpenAIAdapter, Upstream]]:
    async with scripted(play) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url), **options)
        yield adapter, upstream
        await adapter.aclose()


async def call(answer: bytes, request: GenerateRequest, at: Call | None = None) -> Answer:
    """One call to an upstream that sends `answer` and closes."""
    async with adapting(answers(answer)) as (adapter, _):
        return await adapter.call(request, at or within())


async def streamed(answer: bytes, **fields: Any) -> tuple[list[bytes], Answer]:
    """A stream read to its end."""
    async with adapting(answers(answer)) as (adapter, _):
        begun = await adapter.call(chat(stream=True, **fields), within())
        return [part async for part in begun], begun


def recording(received: list[ReceivedRequest], answer: bytes) -> Play:
    async def play(peer: Peer) -> None:
        received.append(await peer.request())
        peer.send(answer)

    return play
