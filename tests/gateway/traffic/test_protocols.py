"""Each protocol of a pool reaches a server that speaks it."""

import asyncio
from random import Random
from typing import Any

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.tensors import Inferred
from adapters.types import Deadline
from adapters.wire import oip, oip_answers
from adapters.wire.oip_asked import request_of
from gateway.traffic.fleet import Fleet
from tests.support.gateways import config

REQUEST = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[1,2]}]}'


class Echo:
    """Answers with its inputs, over HTTP, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def __call__(self, http: Request) -> Response:
        self.asked.append((http.path, http.headers.get("authorization")))
        if http.path == "/v2/health/ready":
            return Response(200)
        length = oip.header_length(http.headers.get(oip.HEADER))
        inference = oip.decode_request(await http.read(), length, "m")
        body, length = oip_answers.encode_response(
            Inferred("m", "1", outputs=inference.inputs), oip_answers.wanted(inference)
        )
        return Response(200, [(oip.HEADER, str(length))] if length is not None else [], body)


@pytest.mark.parametrize("more", [{}, {"binary": False}, {"model": "theirs", "key": "secret-of-theirs"}])
async def test_oip_http(more: dict[str, Any]) -> None:
    echo = Echo()
    server = Server(echo)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    written = {"name": "main", "protocol": "oip-http", "endpoints": [f"http://{host}:{port}"], **more}
    fleet = Fleet(Random(1), asyncio.get_running_loop().time)
    pool = fleet.commit(fleet.prepare(config(pools=[written])))["main"]
    async with asyncio.timeout(30):
        while pool.endpoints[0].health != "healthy":
            await asyncio.sleep(0.005)
    answer = await pool.call(request_of(REQUEST, model="chat", version=""), Deadline(1e9, 30.0, 30.0))
    assert answer.body is not None
    assert bytes(oip_answers.decode_response(answer.body, answer.form.header_length).outputs[0].data) == bytes(
        [1, 0, 0, 0, 2, 0, 0, 0]
    )
    key = f"Bearer {more['key']}" if "key" in more else None
    assert ("/v2/health/ready", key) in echo.asked
    assert (f"/v2/models/{more.get('model', 'chat')}/infer", key) in echo.asked
    await fleet.aclose()
    await server.aclose()
