"""A small OpenAI-shaped server on a real socket, whose behaviour a test decides."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from adapters.http1.message import Request, Response
from adapters.http1.server import Server

Behaviour = Callable[[dict[str, Any]], Awaitable[Response]]


class Upstream:
    """Answers `text` unless `behaviour` decides otherwise; records the received bodies."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.healthy = True
        self.behaviour: Behaviour | None = None
        self.url = ""

    async def __call__(self, http: Request) -> Response:
        if http.path == "/health":
            return Response(200 if self.healthy else 503)
        if http.method != "POST":
            return Response(404)
        body = json.loads(await http.read())
        self.received.append(body)
        self.headers.append(dict(http.headers))
        if self.behaviour is not None:
            return await self.behaviour(body)
        return stream(self.text) if body.get("stream") else whole(self.text)


def whole(text: str) -> Response:
    """A whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return Response(200, [("content-type", "application/json")], json.dumps(body).encode())


def stream(text: str, gap: float = 0.0) -> Response:
    """The same, one word an event, `gap` seconds apart."""
    return Response(200, [("content-type", "text/event-stream")], Events(text.split(" "), gap))


class Events:
    """A body of chat chunks."""

    def __init__(self, words: list[str], gap: float) -> None:
        self._pieces = [_chunk(word + " ") for word in words] + [_chunk(None), b"data: [DONE]\n\n"]
        self._gap = gap
        self.closed = 0

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        await asyncio.sleep(self._gap)
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        self.closed += 1


def _chunk(content: str | None) -> bytes:
    choice = {
        "index": 0,
        "delta": {"content": content} if content else {},
        "finish_reason": None if content else "stop",
    }
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@asynccontextmanager
async def upstream(text: str = "hello there") -> AsyncIterator[Upstream]:
    """One that listens."""
    made = Upstream(text)
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        await server.aclose()
