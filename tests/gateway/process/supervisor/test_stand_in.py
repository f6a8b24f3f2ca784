"""While no worker serves, clients get a 503 in the form of their API, and a worker's return ends it."""

import asyncio
import json
from typing import Any

import pytest

from config.schema.units import HostPort
from gateway.process.supervisor.sockets import Sockets
from gateway.process.supervisor.stand_in import StandIn

pytestmark = pytest.mark.realtime


async def post(port: int, path: str) -> tuple[int, dict[str, str], Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"model": "chat"}'
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.strip().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    content = json.loads(await reader.readexactly(int(fields["content-length"])))
    writer.close()
    return int(status.split()[1]), fields, content


async def test_every_api_has_its_own_error() -> None:
    sockets = Sockets(HostPort("127.0.0.1", 0), HostPort("127.0.0.1", 0))
    await sockets.begin(2)
    stand_in = StandIn(sockets, lambda: None)
    stand_in.open()
    stand_in.open()
    port = sockets.address[1]
    status, fields, openai = await post(port, "/v1/chat/completions")
    assert (status, fields["retry-after"], openai["error"]["code"]) == (503, "1", "no_worker")
    assert (await post(port, "/v1/messages"))[0] == 529
    for path in ("/v2/models/m/infer", "/apps/a/run", "/v1/models/m:predict"):
        status, fields, _ = await post(port, path)
        assert (status, fields["x-headrace-error"]) == (503, "no_worker")
    assert sockets.grpc_address is not None
    reader, writer = await asyncio.open_connection(*sockets.grpc_address)
    assert await reader.read() == b""
    writer.close()
    await stand_in.aclose()
    await stand_in.aclose()

    waiting = asyncio.create_task(post(port, "/v1/chat/completions"))  # in the backlog, for the next worker
    stand_in.open()
    assert (await waiting)[0] == 503
    await stand_in.aclose()
    sockets.close()
