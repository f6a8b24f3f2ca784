"""How long a stream is held by a cascade and a guard together, and at every API of texts."""

import asyncio
from typing import Any

import aiohttp
import pytest

from adapters.answer import Answer
from adapters.call import Call
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from adapters.stream import Stream
from adapters.types import OPENAI, Usage
from tests.gateway.features.pipelines.rigs import chat_fake, chunks, rig
from tests.support.gateways import Rig, chat, listening
from tests.support.guards import BODIES, Classifier

MINUTES = 300
WINDOW = 3
"""Tokens of four characters; the server sends one of these in each event."""


class FedStream(Stream):
    """Sends an event when the test puts one into its queue; None ends it."""

    def __init__(self, events: asyncio.Queue[bytes | None]) -> None:
        super().__init__(content_type="text/event-stream", usage=Usage(), form=OPENAI)
        self._events = events

    async def _next(self, patience: float | None = None) -> bytes:
        event = await self._events.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def _drop(self) -> None:
        return None


class FedServer(FakeAdapter):
    """A server whose stream the test feeds event by event."""

    def __init__(self) -> None:
        super().__init__()
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return FedStream(self.events)


def held(small: FakeAdapter, hold: int) -> Rig:
    """A cascade that holds `hold` tokens, in front of a guard with a window of three tokens."""
    stages = [{"model": "small", "accept_if": 'text != "no"', "hold": hold}, {"model": "large"}]
    guard = {"model": "toxicity", "block_if": "score >= 0.8", "on": "answer", "input": "text"}
    steps: list[dict[str, Any]] = [
        {"name": "draft", "cascade": stages},
        {"name": "guard", "guard": {**guard, "window": WINDOW, "overlap": 1}},
    ]
    fakes = {"small": small, "large": chat_fake("unused"), "toxicity": Classifier()}
    return rig({"steps": steps}, fakes, tensors=["toxicity"])


@pytest.mark.parametrize(("hold", "first"), [(1, 3), (2, 3), (3, 3), (4, 4), (7, 7)])
async def test_the_first_token_leaves_with_the_longer_of_hold_and_window(hold: int, first: int) -> None:
    """The tokens that a cascade holds fill the guard's window: the two delays do not add up."""
    one = held(FakeAdapter(Script(chunks=chunks(*["abcd"] * 10), gap=1.0)), hold)
    loop, started = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, one.record())
    times = [loop.time() - started async for piece in answer if b"abcd" in piece]
    assert times[0] == pytest.approx(first - 1)  # the server sends its first token at 0 s
    assert times[-1] <= 10
    assert one.adapters["large"][0].calls == []


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("hold", [1, 5])
async def test_every_api_sends_a_text_once_hold_and_window_have_passed(path: str, hold: int) -> None:
    """The server sends no further event before the client has the text of the first ones."""
    server = FedServer()
    one = held(server, hold)
    events = list(chunks(*["abcd"] * 10))
    first = max(hold, WINDOW)
    async with listening(one) as url, aiohttp.ClientSession() as http, asyncio.timeout(MINUTES):
        http.headers["authorization"] = f"Bearer {one.key.plaintext}"
        for event in events[:first]:
            server.events.put_nowait(event)
        async with http.post(url + path, json={"model": "whole", "stream": True, **BODIES[path]}) as response:
            async for line in response.content:
                if b"abcd" in line:
                    break
            assert server.events.empty()
            for rest in (*events[first:], None):
                server.events.put_nowait(rest)
            assert "abcd" in await response.text()
        await one.until_idle()
