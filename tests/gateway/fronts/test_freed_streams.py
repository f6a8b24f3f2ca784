"""The memory of a stream is freed when its client disconnects, without a garbage collection, which may come late."""

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.base import Answer
from adapters.fake import FakeAdapter, Script
from adapters.http1.client import Client
from adapters.http1.connection import Connection
from adapters.http1.message import Request, Response
from adapters.http1.server import Limits, Server
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire import sse
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.adapters.http1.raw import until
from tests.support.gateways import Rig, config

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5, "stream": True}
DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "chat", "prompt": "x", "stream": True},
    "/v1/messages": CHAT,
    "/v1/responses": {"model": "chat", "input": "x", "stream": True},
    "/v2/models/chat/generate_stream": {"text_input": "x"},
}
CLIENTS = 3
EVENT = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHUNK = {**EVENT, "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}


class Stuck:
    """A stream with one event and no end."""

    def __init__(self) -> None:
        self._sent = False

    def __aiter__(self) -> "Stuck":
        return self

    async def __anext__(self) -> bytes:
        if self._sent:
            await asyncio.Event().wait()
        self._sent = True
        return b"data: " + json.dumps(CHUNK).encode() + b"\n\n"

    async def aclose(self) -> None:
        pass


async def stuck_upstream(http: Request) -> Response:
    await http.read()
    return Response(200, [("content-type", "text/event-stream")], Stuck())


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def leave(port: int, key: str, path: str, body: bytes) -> None:
    """Request a stream and disconnect after its first event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
    await reader.readuntil(b"\r\n\r\n")
    await reader.read(1)
    writer.transport.abort()


def held() -> list[object]:
    return [object_ for object_ in gc.get_objects() if isinstance(object_, Answer | Connection)]


async def check(rig: Rig, doors: dict[str, dict[str, Any]]) -> None:
    before = held()  # other tests of the process may hold some
    server = Server(client_fronts(rig.core), Limits(), openai_refusal)
    _, port = await server.listen_tcp("127.0.0.1", 0)
    for path, fields in doors.items():
        body = json.dumps(fields).encode()
        await asyncio.gather(*[leave(port, rig.key.plaintext, path, body) for _ in range(CLIENTS)])
        await rig.until_idle()
        await until(lambda: not server.connections)
        rig.core.telemetry.flush()
        assert [record.status for record in rig.log.records] == [499] * CLIENTS, path
        rig.log.records.clear()
        await asyncio.sleep(0)
        new = [object_ for object_ in held() if not any(object_ is older for older in before)]
        assert not [object_ for object_ in new if type(object_) is not Connection or object_._server is server], path
    await server.aclose()


@pytest.mark.usefixtures("no_collection")
async def test_a_client_that_leaves_a_stream_stops_and_frees_it_at_every_door() -> None:
    adapter = FakeAdapter(Script(gap=0.001, chunks=(sse.encode(json.dumps(CHUNK).encode()),) * 10_000))
    await check(Rig(config(), {"main": [adapter]}), DOORS)
    assert [call.end for call in adapter.calls] == ["cancelled"] * CLIENTS * len(DOORS)


@pytest.mark.usefixtures("no_collection")
async def test_a_client_that_leaves_a_real_stream_frees_it() -> None:
    upstream = Server(stuck_upstream, Limits())
    host, port = await upstream.listen_tcp("127.0.0.1", 0)
    adapter: Any = OpenAIAdapter(Client(f"http://{host}:{port}/v1"))
    await check(Rig(config(), {"main": [adapter]}), {"/v1/chat/completions": CHAT})
    await adapter.aclose()
    await upstream.aclose()
