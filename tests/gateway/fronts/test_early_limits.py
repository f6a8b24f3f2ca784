"""Limits are checked, and memory is reserved, before a body is received or decoded: on every door, in its own shape."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from adapters.http1.budget import COPIES
from adapters.wire import compression
from tests.adapters.http1.raw import Raw, Reply, until
from tests.adapters.http2.peer import connected, framed, request
from tests.gateway.fronts.oip import INFER_BODY, TensorDoor, TensorFake, tensor_door

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
DOORS: dict[str, Any] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "chat", "prompt": "hi"},
    "/v1/embeddings": {"model": "chat", "input": "hi"},
    "/v1/responses": {"model": "chat", "input": "hi"},
    "/v1/messages": {**CHAT, "max_tokens": 5},
    "/v1/rerank": {"model": "chat", "query": "a", "documents": ["b"]},
    "/v2/models/chat/infer": INFER_BODY,
    "/v1/models/chat:predict": {"instances": [[1, 2]]},
    "/apps/chat/path": {"any": "thing"},
    "/predictions/chat": {"any": "thing"},
}
INFER = "/inference.GRPCInferenceService/ModelInfer"
LENGTH = 500_000


def message_of(document: Any) -> str:
    """The message of an error in any door's shape."""
    error = document.get("error", document.get("message"))
    return str(error.get("message") if isinstance(error, dict) else error)


async def begun(d: TensorDoor, path: str, length: int, *fields: str, body: bytes = b"") -> Raw:
    """A request whose body is not whole."""
    host, port = d.address.split(":")
    client = Raw(*await asyncio.open_connection(host, int(port)))
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *fields]
    lines += [f"Authorization: {d.keyed['authorization']}", f"Content-Length: {length}", "", ""]
    client.send("\r\n".join(lines).encode() + body)
    return client


async def refused(d: TensorDoor, path: str, length: int, *fields: str, body: bytes = b"") -> Reply:
    client = await begun(d, path, length, *fields, body=body)
    try:
        return await client.reply()
    finally:
        client.close()


@pytest.mark.parametrize("path", DOORS)
async def test_a_tenant_without_a_place_sends_no_body(path: str) -> None:
    async with tensor_door(limits={"concurrency": 1}) as d:
        holder = await begun(d, "/v1/chat/completions", LENGTH)
        account = d.rig.ledger.accounts["acme"]
        await until(lambda: account.in_flight == 1)
        reply = await refused(d, path, LENGTH)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert "requests at once" in message_of(reply.decoded)
        holder.close()
        await until(lambda: account.in_flight == 0)


async def test_the_place_taken_early_is_the_requests_own() -> None:
    """Under a limit of one, a request whose body arrives in two parts needs no second place."""
    body = json.dumps(INFER_BODY).encode()
    async with tensor_door(limits={"concurrency": 1, "requests": "1/h"}) as d:
        client = await begun(d, "/v2/models/chat/infer", len(body), body=body[:10])
        await until(lambda: d.rig.ledger.accounts["acme"].in_flight == 1)
        client.send(body[10:])
        assert (await client.reply()).status == 200
        client.close()
        assert (await refused(d, "/v2/models/chat/infer", len(body))).status == 429


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
async def test_a_tenant_over_its_limit_has_nothing_decoded(
    path: str, coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []

    def decompress(body: bytes, coding: str, limit: int) -> bytes:
        decoded.append(coding)
        return body

    monkeypatch.setattr(compression, "decompress", decompress)
    async with tensor_door(limits={"requests": "1/h"}) as d:
        assert (await d.post("/v2/models/chat/infer")).status == 200
        bomb = gzip.compress(bytes(900_000))
        response = await d.post(path, bomb, content_encoding=coding, content_type="application/json")
        assert response.status == 429
        assert decoded == []


@pytest.mark.parametrize("path", [path for path in DOORS if not path.startswith(("/apps", "/predictions"))])
async def test_every_door_reads_encoded_bodies_and_names_a_coding_that_it_does_not_know(path: str) -> None:
    async with tensor_door() as d:
        body = json.dumps(DOORS[path]).encode()
        plain = await d.post(path, body, content_type="application/json")
        packed = gzip.compress(body)
        encoded = await d.post(path, packed, content_encoding="gzip", content_type="application/json")
        assert encoded.status == plain.status
        unknown = await d.post(path, packed, content_encoding="middle-out", content_type="application/json")
        assert unknown.status == 415
        assert "middle-out" in message_of(json.loads(await unknown.read()))
        bomb = gzip.compress(bytes(2_000_000))
        large = await d.post(path, bomb, content_encoding="gzip", content_type="application/json")
        assert large.status == 413


@pytest.mark.parametrize("path", DOORS)
async def test_a_full_budget_refuses_the_body_before_it_arrives(path: str) -> None:
    http = {"max_body": "1MB", "max_held": "6MB", "max_held_by_tenant": "3MB"}
    async with tensor_door(http=http) as d:
        memory = d.rig.core.memory
        holder = await begun(d, "/v1/chat/completions", 900_000)
        await until(lambda: memory.of("acme").held == COPIES * 900_000)
        reply = await refused(d, path, LENGTH)
        assert reply.status == 429
        assert "has reached the limit of bytes" in message_of(reply.decoded)
        holder.close()
        await until(lambda: memory.process.held == 0)
        memory.process.force(6_500_000)
        reply = await refused(d, path, LENGTH)
        assert reply.status in (503, 529)  # which is Anthropic's
        assert "The server has reached its limit of bytes" in message_of(reply.decoded)
        memory.process.force(-6_500_000)


async def test_a_grpc_call_without_a_place_or_room_is_refused_before_its_message() -> None:
    http = {"max_body": "1MB", "max_held": "4MB", "max_held_by_tenant": "3MB"}
    async with tensor_door(TensorFake(), limits={"concurrency": 1}, http=http) as d:
        key = d.keyed["authorization"]
        async with connected(int(d.grpc.rpartition(":")[2])) as peer:
            head = request(INFER, authorization=key)
            first = peer.h2.get_next_available_stream_id()
            peer.h2.send_headers(first, head)
            peer.h2.send_data(first, framed(bytes(900_000))[:16_000])
            peer.flush()
            memory = d.rig.core.memory
            await until(lambda: memory.of("acme").held >= COPIES * 900_000)
            second = peer.h2.get_next_available_stream_id()
            peer.h2.send_headers(second, head)
            peer.flush()
            answer = await peer.answer(second)
            assert answer.status == 8
            assert "requests at once" in answer.head["grpc-message"]
            peer.h2.reset_stream(first)
            peer.flush()
            await until(lambda: memory.process.held == 0 and d.rig.ledger.accounts["acme"].in_flight == 0)
