"""The end of a drain: what still runs gets an error in the shape of its door, and is logged as the gateway's doing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from adapters.fake import FakeAdapter, Script
from adapters.http1.server import Limits, Server
from adapters.types import Usage
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from gateway.telemetry.figures import FigureSet
from tests.gateway.fronts.oip import TensorFake
from tests.support.doors import CHATS, MESSAGES, REQUESTS, RESPONSES, Door, door_of
from tests.support.gateways import Rig, config
from tests.support.grpc_doors import SUM, grpc_door, message

CODE = "gateway_draining"
WHOLE = [path for path, body in REQUESTS.items() if body is not None and path != "/v1/feedback"]
STREAMS = (CHATS, MESSAGES, RESPONSES, "/v1/completions")
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"chat","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'  # noqa: E501
SLOW = Script(latency=3600.0)
ENDLESS = Script(chunks=(CHUNK,) * 100, gap=60.0, usage=Usage(prompt_tokens=3))


@asynccontextmanager
async def drained(fake: FakeAdapter, **http: Any) -> AsyncIterator[tuple[Door, Server]]:
    """A door, and the server that serves it."""
    rig = Rig(config(http={"stream_comments": None, **http}), {"main": [fake]})
    async with door_of(rig) as opened:
        server = Server(client_fronts(rig.core), Limits(), openai_refusal)
        host, port = await server.listen_tcp("127.0.0.1", 0)
        opened.url = f"http://{host}:{port}"
        try:
            yield opened, server
        finally:
            await server.aclose()


async def until_called(fake: FakeAdapter) -> None:
    async with asyncio.timeout(300):
        while not fake.calls:
            await asyncio.sleep(0.01)


def check(rig: Rig) -> None:
    """The end is the gateway's: it is a failure, the client pays nothing for it, and the endpoint is not blamed."""
    line = rig.log.lines[-1]
    assert (line.status, line.error, line.code) == (503, "capacity", CODE)
    assert line.reason is not None
    assert line.reason["cause"] == "drained"
    figures = FigureSet.read(rig.metrics.recent.window(rig.log.records[-1].time + 3))
    assert figures.named["pools"]["main"].failures == 1
    assert not rig.endpoints["main"][0].breaker.is_open


@pytest.mark.parametrize("comments", [None, "1s"])
@pytest.mark.parametrize("path", WHOLE)
async def test_a_whole_answer_is_a_503_of_its_door(path: str, comments: str | None) -> None:
    fake = FakeAdapter(SLOW)
    async with drained(fake, stream_comments=comments) as (opened, server):
        sending = asyncio.create_task(opened.send("POST", path, REQUESTS[path]))
        await until_called(fake)
        assert await server.cut_requests(5.0) == 1
        answer = await sending
        assert answer.status in (503, 529)
        assert answer.headers["x-should-retry"] == "true"
        assert CODE in str(answer.headers) + await answer.text()
        check(opened.rig)
        assert opened.rig.log.lines[-1].prompt_tokens is None


@pytest.mark.parametrize("comments", [None, "1s"])
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_ends_with_an_error_event(path: str, begun: bool, comments: str | None) -> None:
    fake = FakeAdapter(ENDLESS if begun else SLOW)
    async with drained(fake, stream_comments=comments) as (opened, server):
        body = json.dumps({**(REQUESTS[path] or {}), "stream": True})
        headers = opened.keyed | {"content-type": "application/json"}
        sending = asyncio.create_task(opened.http.post(opened.url + path, data=body, headers=headers))
        await until_called(fake)
        if begun or comments:
            answer = await sending
            await answer.content.readany()
        assert await server.cut_requests(5.0) == 1
        answer = await sending
        written = await answer.text()
        if answer.status == 200:
            assert json.loads(written.strip().rpartition("data: ")[2])
        assert CODE in written
        check(opened.rig)


async def test_a_client_that_left_before_is_its_own_doing() -> None:
    fake = FakeAdapter(SLOW)
    async with drained(fake) as (opened, server):
        sending = asyncio.create_task(opened.send("POST", CHATS, REQUESTS[CHATS]))
        await until_called(fake)
        sending.cancel()
        await opened.rig.until_idle()
        assert await server.cut_requests(5.0) == 0
        assert (opened.rig.log.lines[-1].status, opened.rig.log.lines[-1].code) == (499, "client_closed_request")


async def test_an_idle_connection_is_not_cut_and_costs_no_wait() -> None:
    async with drained(FakeAdapter(Script(chunks=(b"{}",)))) as (opened, server):
        await opened.send("POST", CHATS, REQUESTS[CHATS])
        before = opened.rig.core.clock()
        assert await server.cut_requests(5.0) == 0
        assert opened.rig.core.clock() == before


@pytest.mark.realtime
@pytest.mark.parametrize("stream", [True, False])
async def test_grpc_is_unavailable(stream: bool) -> None:
    fake = TensorFake(Script(latency=3600.0, form=SUM.form, usage=SUM.usage))
    async with grpc_door(fake) as opened:
        calling = asyncio.create_task(opened.stream(message()) if stream else opened.infer())
        await until_called(fake)
        assert await opened.door.calls.cut_requests(5.0) == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await calling
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert {line.status for line in opened.rig.log.lines} == {503}
        check(opened.rig)
