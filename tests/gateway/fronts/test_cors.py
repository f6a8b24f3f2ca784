"""Browsers of other origins on every door: preflights, allowed origins, other origins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from adapters.fake import FakeAdapter, Script
from adapters.http1.message import Headers, Request, Response
from adapters.http1.server import Limits, Server
from config.schema.listen import CorsConfig, Origin
from gateway.fronts.cors import Cors
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.support.chats import HELLO
from tests.support.doors import Door
from tests.support.gateways import Rig, config

PAGE = "https://app.example.com"
CONFIG = CorsConfig(origins=(PAGE, "http://localhost:3000"))
DOORS = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models", "/v2/models/chat/infer", "/apps/chat/x",
         "/v1/models/chat:predict", "/v1/embeddings", "/v1/conversations", "/nothing"]  # fmt: skip


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    rig = Rig(config(), {"main": [FakeAdapter(Script(chunks=HELLO))]})
    server = Server(Cors(client_fronts(rig.core), CONFIG), Limits(), openai_refusal)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        yield Door(rig, f"http://{host}:{port}", stack, http)
    await server.aclose()
    rig.assert_idle()


@pytest.mark.parametrize("path", DOORS)
async def test_a_preflight_of_an_allowed_page_is_granted_without_a_key(door: Door, path: str) -> None:
    requested = "authorization,content-type,x-stainless-os"
    headers = {"access_control_request_method": "POST", "access_control_request_headers": requested}
    response = await door.send("OPTIONS", path, authorization="", origin=PAGE, **headers)
    assert response.status == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-allow-headers"] == requested
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-max-age"] == "600"
    assert response.headers["vary"] == "Origin"
    refused = await door.send("OPTIONS", path, authorization="", origin="https://evil.example.com", **headers)
    assert refused.status == 403
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("path", DOORS)
async def test_an_allowed_page_reads_answers_and_refusals(door: Door, path: str) -> None:
    response = await door.send("GET", path, authorization="", origin=PAGE)
    assert response.status >= 400
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-expose-headers"] == "*"
    assert "access-control-allow-credentials" not in response.headers
    assert "access-control-allow-origin" not in (await door.send("GET", path, authorization="", origin="null")).headers


async def test_a_stream_is_collected_by_no_proxy(door: Door) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    for path, more in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 9})):
        response = await door.send("POST", path, {**body, **more}, origin=PAGE)
        assert response.status == 200
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["access-control-allow-origin"] == PAGE


NEAR = [f"{PAGE}.evil.com", f"{PAGE}:443", f"{PAGE}/", PAGE.upper(), "*", "null"]


@given(st.text(max_size=40) | st.sampled_from(NEAR))
async def test_no_other_origin_is_ever_allowed(origin: str) -> None:
    async def fronts(http: Request) -> Response:
        return Response(200)

    encoded = origin.encode("latin-1", "replace")
    for method in ("OPTIONS", "GET"):
        headers = Headers({b"origin": encoded, b"access-control-request-method": b"POST"})
        response = await Cors(fronts, CONFIG)(Request(method, b"/v1/models", headers, ""))
        allowed = dict(response.headers).get("access-control-allow-origin")
        assert allowed == (encoded.decode("latin-1") if encoded.decode("latin-1") in CONFIG.origins else None)


@given(st.binary(max_size=60))
async def test_no_requested_header_breaks_out_of_its_line(requested: bytes) -> None:
    async def fronts(http: Request) -> Response:
        raise AssertionError

    fields = {b"origin": PAGE.encode(), b"access-control-request-method": b"POST"}
    headers = Headers({**fields, b"access-control-request-headers": requested})
    response = await Cors(fronts, CONFIG)(Request("OPTIONS", b"/", headers, ""))
    granted = dict(response.headers).get("access-control-allow-headers", "")
    assert "\r" not in granted
    assert "\n" not in granted


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nOrigin: %b\r\nHost: a\r\n"
UNREAD = {
    "a broken field": b"bad field\r\n\r\n",
    "a field twice": b"authorization: a\r\nauthorization: b\r\n\r\n",
    "a large head": b"x: %b\r\n\r\n" % (b"a" * 200_000),
    "many fields": b"x: y\r\n" * 2000 + b"\r\n",
    "another coding": b"transfer-encoding: gzip\r\n\r\n",
    "an expectation": b"expect: more\r\n\r\n",
}


@pytest.mark.parametrize("rest", UNREAD.values(), ids=UNREAD.keys())
@pytest.mark.parametrize("origin", [PAGE, "https://evil.example"])
async def test_a_page_reads_the_refusal_of_a_request_that_no_front_gets(rest: bytes, origin: str) -> None:
    async def fronts(http: Request) -> Response:
        raise AssertionError

    cors = Cors(fronts, CONFIG)
    server = Server(cors, Limits(), cors.refuse)
    try:
        reader, writer = await asyncio.open_connection(*await server.listen_tcp("127.0.0.1", 0))
        writer.write(HEAD % origin.encode() + rest)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        writer.close()
    finally:
        await server.aclose()
    assert head.startswith((b"http/1.1 4", b"http/1.1 5"))
    assert (b"access-control-allow-origin: %b\r\n" % PAGE.encode() in head) is (origin == PAGE)
    assert b"vary: origin" in head


INEXACT = ["*", "null", "https://a.example/", "https://A.example", "a.example", "https://*.a.b", ""]


@pytest.mark.parametrize("origin", INEXACT)
def test_an_inexact_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Origin).validate_python(origin)
