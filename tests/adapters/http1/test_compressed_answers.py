"""Compressed answers of servers, in every chunking, over every kind of adapter."""

import gzip
import json
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.http1.client import Client
from adapters.registry import Address, make
from adapters.requests import AppRequest
from adapters.wire.anthropic import requests as messages
from tests.adapters.http1.scripted import Peer, ReceivedRequest, scripted
from tests.support.gateways import config
from tests.support.openai_answers import BODY, DONE, A, B, chat, within

CODINGS = {
    "gzip": gzip.compress, "x-gzip": gzip.compress, "GZIP ": gzip.compress, "deflate": zlib.compress,
    "deflate ": lambda body: zlib.compress(body, wbits=-15), "identity": bytes, "": bytes,
}  # fmt: skip


def head(coding: str, kind: str) -> bytes:
    lines = [f"content-encoding: {coding}"] if coding else []
    lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", *lines, "transfer-encoding: chunked", "", ""]
    return "\r\n".join(lines).encode()


def chunked(data: bytes, cuts: list[int]) -> bytes:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return b"".join([b"%x\r\n%b\r\n" % (b - a, data[a:b]) for a, b in pairwise(places)]) + b"0\r\n\r\n"


async def through(answer: bytes, request: object, protocol: str) -> bytes:
    """The body of an answer that a server sends, as the adapter of a protocol returns it."""
    received: list[ReceivedRequest] = []

    async def play(peer: Peer) -> None:
        received.append(await peer.request())
        peer.send(answer)
        await peer.left()

    async with scripted(play) as upstream:
        (pool,) = config(pools=[{"name": "p", "protocol": protocol, "endpoints": [upstream.url]}]).pools
        adapter = make(pool, Address(upstream.url))
        try:
            reply = await adapter.call(request, within())  # type: ignore[arg-type]
            body = reply.body if reply.body is not None else b"".join([part async for part in reply])
        finally:
            await adapter.aclose()
    assert "content-encoding" not in dict(reply.headers)
    if protocol != "oip-http":  # which passes compressed tensors on
        assert received[0].headers["accept-encoding"] == "identity"
    return body


REQUEST = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}
EVENTS = b"\n\n".join([A, B, DONE, b""])
CASES = {
    "a chat": (BODY, "application/json", chat(), "openai"),
    "a stream": (EVENTS, "text/event-stream", chat(stream=True), "openai"),
    "a message": (
        json.dumps(MESSAGE).encode(), "application/json",
        messages.decode_message(json.dumps(REQUEST).encode()), "anthropic",
    ),
    "an app": (b"any" * 999, "text/plain", AppRequest(model="m", path="/x", method="GET", content_type=""), "http"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CASES])
@given(coding=st.sampled_from(sorted(CODINGS)), cuts=st.lists(st.integers(0, 10_000), max_size=9))
async def test_a_compressed_answer_is_decoded(name: str, coding: str, cuts: list[int]) -> None:
    body, kind, request, protocol = CASES[name]
    answer = head(coding, kind) + chunked(CODINGS[coding](body), cuts)
    assert await through(answer, request, protocol) == body


PACKED = gzip.compress(BODY)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", PACKED[:-9]),
        ("gzip", PACKED + b"more"),
        ("gzip", BODY),
        ("deflate", b"x"),
        ("br", BODY),
        ("gzip, gzip", gzip.compress(PACKED)),
        ("gzip", gzip.compress(bytes(64 * 2**20))),
    ],
    ids=["cut off", "too long", "not compressed", "short", "unknown", "twice", "bomb"],
)
async def test_an_answer_that_cannot_be_decoded_is_a_failure_of_the_server(coding: str, body: bytes) -> None:
    for kind, request in (("application/json", chat()), ("text/event-stream", chat(stream=True))):
        with pytest.raises(BackendError) as caught:
            await through(head(coding, kind) + chunked(body, [5]), request, "openai")
        assert caught.value.code == "upstream_bad_response"


async def test_an_empty_answer_has_no_coding() -> None:
    async with scripted(lambda peer: _empty(peer)) as upstream:
        client = Client(upstream.url)
        response = await client.request(b"GET", b"/", b"", b"", within().deadline)
        assert (response.status, await response.read()) == (204, b"")
        await client.aclose()


async def _empty(peer: Peer) -> None:
    await peer.request()
    peer.send(b"HTTP/1.1 204 No Content\r\ncontent-encoding: gzip\r\n\r\n")
