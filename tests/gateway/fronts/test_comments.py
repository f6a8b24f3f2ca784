"""Comments before a late first event, on every door whose streams are events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from adapters.errors import TransportError
from adapters.fake import FakeAdapter, Script
from gateway.fronts.comments import COMMENT
from tests.adapters.http1.raw import until
from tests.support.chats import HELLO
from tests.support.doors import Door
from tests.support.doors import door as opened

LATE = 0.2
PATIENCE = "40ms"
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": True}
DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": CHAT,
    "/v1/responses": {"model": "chat", "input": "hi", "stream": True},
}
EVERY_DOOR = pytest.mark.parametrize("path", DOORS)


@asynccontextmanager
async def door(script: Script, patience: str | None = PATIENCE) -> AsyncIterator[Door]:
    async with opened(FakeAdapter(script), http={} if patience is None else {"stream_comments": patience}) as made:
        yield made
        await made.rig.until_idle()


async def stream(d: Door, path: str, **changes: Any) -> tuple[int, str, bytes]:
    response = await d.send("POST", path, {**DOORS[path], **changes})
    return response.status, response.content_type, await response.read()


@EVERY_DOOR
async def test_a_late_stream_begins_with_comments_and_is_whole_behind_them(path: str) -> None:
    async with door(Script(chunks=HELLO)) as d:
        _, _, prompt = await stream(d, path)
        assert COMMENT not in prompt
    async with door(Script(chunks=HELLO, latency=LATE)) as d:
        status, content_type, body = await stream(d, path)
        assert (status, content_type) == (200, "text/event-stream")
        assert body.startswith(COMMENT * 2)
        late = body.replace(COMMENT, b"")
        assert late.count(b"\n\n") == prompt.count(b"\n\n")
        assert [record.status for record in d.rig.log.records] == [200]


async def test_only_events_of_gemini_s_door_have_comments() -> None:
    path, body = "/v1beta/models/chat:streamGenerateContent", {"contents": [{"parts": [{"text": "hi"}]}]}
    for fault in (None, TransportError("The upstream closed the connection.")):
        async with door(Script(chunks=HELLO, latency=LATE, fault=fault)) as d:
            response = await d.send("POST", path, body)
            assert response.status == (200 if fault is None else 502)
            assert isinstance(await response.json(), list if fault is None else dict)
            response = await d.send("POST", f"{path}?alt=sse", body)
            assert (await response.read()).startswith(COMMENT * 2)


@EVERY_DOOR
async def test_a_failure_after_comments_is_an_event_and_logged_with_its_status(path: str) -> None:
    failing = Script(latency=LATE, fault=TransportError("The upstream closed the connection."))
    async with door(failing) as d:
        status, content_type, body = await stream(d, path)
        assert (status, content_type) == (200, "text/event-stream")
        comments, _, event = body.rpartition(COMMENT)
        assert comments == COMMENT * comments.count(COMMENT)
        data = json.loads(event[event.index(b"data: ") + 6 :])
        assert "The upstream closed the connection." in json.dumps(data)
        assert b"[DONE]" not in body
        assert [record.status for record in d.rig.log.records] == [502]


@EVERY_DOOR
async def test_a_failure_within_the_patience_has_its_status(path: str) -> None:
    failing = Script(fault=TransportError("The upstream closed the connection."))
    async with door(failing, patience="30s") as d:
        status, content_type, _ = await stream(d, path)
        assert (status, content_type) == (502, "application/json")


@EVERY_DOOR
async def test_without_the_setting_and_without_a_stream_there_are_none(path: str) -> None:
    async with door(Script(chunks=HELLO, latency=LATE), patience=None) as d:
        _, _, body = await stream(d, path)
        assert COMMENT not in body
    failing = Script(latency=LATE, fault=TransportError("The upstream closed the connection."))
    async with door(failing) as d:
        status, content_type, _ = await stream(d, path, stream=False)
        assert (status, content_type) == (502, "application/json")


@EVERY_DOOR
@pytest.mark.parametrize("after", [0.0, 0.06, 0.25])
async def test_a_client_that_leaves_stops_the_upstream(path: str, after: float) -> None:
    async with door(Script(chunks=HELLO, latency=LATE, gap=0.2)) as d:
        reading = asyncio.create_task(stream(d, path))
        await until(lambda: bool(d.fake.calls))
        await asyncio.sleep(after)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(lambda: bool(d.rig.log.records))
        assert all(call.end == "cancelled" for call in d.fake.calls)
        assert len(d.rig.log.records) == 1


async def test_the_official_clients_read_over_comments() -> None:
    async with door(Script(chunks=HELLO, latency=LATE)) as d:
        chunks = [c async for c in await d.openai.chat.completions.create(**CHAT)]  # type: ignore[call-overload]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello!"
        events = [e async for e in await d.openai.responses.create(model="chat", input="hi", stream=True)]
        assert events[-1].type == "response.completed"
        greeting: Any = [{"role": "user", "content": "hi"}]
        async with d.anthropic.messages.stream(model="chat", max_tokens=9, messages=greeting) as messages:
            assert await messages.get_final_text() == "Hello!"
    failing = Script(latency=LATE, fault=TransportError("The upstream closed the connection."))
    async with door(failing) as d:
        broken = await d.openai.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        with pytest.raises(openai.APIError, match="closed the connection"):
            await anext(broken)
