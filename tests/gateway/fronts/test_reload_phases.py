"""A reload at every phase of a request, over real sockets: the configuration may lose its tenant, model or pool."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from adapters.fake import FakeAdapter, Script
from adapters.http1.server import Limits, Server
from adapters.types import OIP_GRPC
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from gateway.request.snapshot import build
from tests.gateway.fronts.oip import TensorFake, tensor_door
from tests.support.gateways import Rig, config
from tests.support.grpc_doors import message, response

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
TENSOR = {"inputs": [{"name": "A", "shape": [1], "datatype": "INT32", "data": [1]}]}
DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions?": {**CHAT, "stream": True},
    "/v1/completions": {"model": "chat", "prompt": "x"},
    "/v1/embeddings": {"model": "chat", "input": "x"},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": {"model": "chat", "messages": CHAT["messages"]},
    "/v1/responses": {"model": "chat", "input": "x"},
    "/v1/rerank": {"model": "chat", "query": "x", "documents": ["y"]},
    "/v2/models/chat/infer": TENSOR,
    "/v2/models/chat/generate": {"text_input": "x"},
    "/v1/models/chat:predict": {"instances": [1]},
    "/apps/chat/x": {},
}
ACME = {"name": "acme", "models": ["*"], "explain": True, "limits": {"requests": "1000/min", "concurrency": 50}}
Turn = Callable[[], Awaitable[None]]
OTHER = {"name": "other", "models": ["*"]}
MODEL = {"name": "chat", "routes": [{"to": "main"}]}
CONFIGURATIONS: list[dict[str, Any]] = [
    {"tenants": [OTHER]},
    {"tenants": [{**ACME, "models": ["nothing-*"]}, OTHER]},
    {"tenants": [ACME, OTHER], "models": [{**MODEL, "name": "else"}]},
    {"tenants": [{**ACME, "limits": {"requests": "1/h", "concurrency": 1}}, OTHER]},
    {"tenants": [ACME, OTHER]},
]


def reload(rig: Rig, changes: dict[str, Any]) -> None:
    """Commit like `DataPlane.commit`: limits, then the snapshot, without yielding to other tasks."""
    configuration, core = config(**changes), rig.core
    rig.ledger.configure(configuration.tenants, core.clock(), configuration.models)
    core.snapshot = build(configuration, rig._keys(), core.snapshot.pools, core.rng, core.clock)


@asynccontextmanager
async def reloading(rig: Rig, dice: random.Random) -> AsyncIterator[Turn]:
    """Reloads at any time until the end of the block, and a function that lets other tasks run and may reload too."""

    async def turn() -> None:
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        if dice.random() < 0.3:
            reload(rig, dice.choice(CONFIGURATIONS))

    async def reloads() -> None:
        while True:
            await asyncio.sleep(dice.uniform(0.0, 0.004))
            reload(rig, dice.choice(CONFIGURATIONS))

    background = asyncio.create_task(reloads())
    try:
        yield turn
        await rig.until_idle()
    finally:
        background.cancel()


async def status_line(port: int, key: str, path: str, body: bytes, turn: Any) -> bytes:
    """The status line of one request whose bytes come in pieces, with `turn` between them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path.rstrip('?')} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
    head += "content-type: application/json\r\nx-headrace-explain: 1\r\n"
    sent = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    at = len(sent) - len(body)
    for start, end in ((0, at - 2), (at - 2, at), (at, at + len(body) // 2), (at + len(body) // 2, len(sent))):
        writer.write(sent[start:end])
        await turn()
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0]


async def test_a_tenant_that_is_removed_while_its_body_arrives_is_refused() -> None:
    rig = Rig(config(tenants=[ACME, OTHER]), {"main": [FakeAdapter()]})
    server = Server(client_fronts(rig.core), Limits(), openai_refusal)
    _, port = await server.listen_tcp("127.0.0.1", 0)
    turns = iter(range(4))

    async def turn() -> None:
        await asyncio.sleep(0.02)  # the server reads what was written
        if next(turns) == 2:
            reload(rig, {"tenants": [OTHER]})

    for path, body in (("/v1/chat/completions", CHAT), ("/v2/models/chat/infer", TENSOR)):
        turns = iter(range(4))
        reload(rig, {"tenants": [ACME, OTHER]})
        status = await status_line(port, rig.key.plaintext, path, json.dumps(body).encode(), turn)
        assert status.startswith(b"HTTP/1.1 401 "), (path, status)
    await server.aclose()
    rig.assert_idle()
    assert all(record.ended for record in rig.log.records)


@pytest.mark.parametrize("seed", range(4))
async def test_no_reload_at_any_phase_of_a_request_is_a_failure_of_the_gateway(seed: int) -> None:
    dice = random.Random(seed)
    scripts = [Script(latency=dice.choice([0.0, 0.002]), gap=dice.choice([0.0, 0.002])) for _ in range(8)]
    rig = Rig(config(tenants=[ACME, OTHER]), {"main": [FakeAdapter(*scripts)]})
    server = Server(client_fronts(rig.core), Limits(), openai_refusal)
    _, port = await server.listen_tcp("127.0.0.1", 0)
    async with reloading(rig, dice) as turn:
        for _ in range(6):
            pending = [
                status_line(port, rig.key.plaintext, path, json.dumps(body).encode(), turn)
                for path, body in DOORS.items()
            ]
            for path, status in zip(DOORS, await asyncio.gather(*pending), strict=True):
                assert re.match(rb"HTTP/1.1 (200|400|401|404|429|502|503) ", status), (path, status)
    await server.aclose()
    rig.assert_idle()
    assert all(record.ended for record in rig.log.records)


REFUSALS = {
    "OK", "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
}  # fmt: skip


async def infer(stub: stubs.GRPCInferenceServiceStub, metadata: Any, turn: Turn) -> Any:
    """The status of one inference."""
    call = stub.ModelInfer(message(), metadata=metadata)
    await turn()
    return await call.code()


async def metadata_of(stub: stubs.GRPCInferenceServiceStub, metadata: Any, turn: Turn) -> Any:
    """The status of a question for a model's metadata."""
    call = stub.ModelMetadata(pb.ModelMetadataRequest(name="chat"), metadata=metadata)
    await turn()
    return await call.code()


async def stream(stub: stubs.GRPCInferenceServiceStub, metadata: Any, turn: Turn) -> Any:
    """The status of a stream whose requests come with turns between them."""

    async def requests() -> AsyncIterator[pb.ModelInferRequest]:
        for n in range(4):
            yield message(id=str(n))
            await turn()

    call = stub.ModelStreamInfer(requests(), metadata=metadata)
    try:
        async for _ in call:
            await turn()
    except grpc.aio.AioRpcError as error:
        return error.code()
    return await call.code()


GRPC_CALLS = (infer, stream, metadata_of)


@pytest.mark.realtime  # gRPC has threads
@pytest.mark.parametrize("seed", range(4))
async def test_no_reload_at_any_phase_of_a_grpc_call_is_a_failure_of_the_gateway(seed: int) -> None:
    dice = random.Random(seed)
    gaps = [dice.choice([0.0, 0.002]) for _ in range(8)]
    fake = TensorFake(*(Script(chunks=(response(),), form=OIP_GRPC, latency=gap) for gap in gaps))
    codes = set()
    async with tensor_door(fake, tenants=[ACME, OTHER]) as d, grpc.aio.insecure_channel(d.grpc) as channel:
        stub, metadata = stubs.GRPCInferenceServiceStub(channel), list(d.keyed.items())
        async with reloading(d.rig, dice) as turn:
            for _ in range(8):
                codes |= set(await asyncio.gather(*(send(stub, metadata, turn) for send in GRPC_CALLS)))
    assert {code.name for code in codes} <= REFUSALS
