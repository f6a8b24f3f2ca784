"""The gateway's credentials at its servers: the same for every protocol."""

import asyncio
from typing import Any

import pytest

from adapters.registry import Address, make
from adapters.types import Deadline
from adapters.upstreams.dial import credentials, http1_client
from config.schema.config import PoolConfig
from tests.adapters.http1.scripted import OK, Peer, ReceivedRequest, scripted
from tests.adapters.tensor_service import PATIENCE, Service, serving
from tests.support.gateways import config

pytestmark = pytest.mark.realtime


def pool(**fields: Any) -> PoolConfig:
    (made,) = config(pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], **fields}]).pools
    return made


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, []),
        ({"key": "k"}, [("authorization", "Bearer k")]),
        ({"key": "k", "key_header": "Authorization"}, [("authorization", "Bearer k")]),
        ({"key": "k", "key_header": "Api-Key"}, [("api-key", "k")]),
    ],
)
def test_the_header_that_carries_the_key(fields: dict[str, Any], sent: list[tuple[str, str]]) -> None:
    assert credentials(pool(**fields)) == sent


async def test_every_request_over_http_has_it_and_the_health_check_too() -> None:
    received: list[ReceivedRequest] = []

    async def play(peer: Peer) -> None:
        while True:
            received.append(await peer.request())
            peer.send(OK)

    batches: list[list[ReceivedRequest]] = []
    async with scripted(play) as upstream:
        for fields in ({"key": "k"}, {"key": "k", "protocol": "oip-http", "key_header": "x-key"}):
            adapter = make(pool(**fields), Address(upstream.url))
            await adapter.probe(PATIENCE)
            await adapter.aclose()
            batches.append(received.copy())
            received.clear()
        client = http1_client(pool(), Address(upstream.url))
        now = asyncio.get_running_loop().time()
        response = await client.request(b"GET", b"/", b"", b"", Deadline(now + PATIENCE, PATIENCE, PATIENCE))
        await response.read()
        await client.aclose()
    bearers, owns = batches
    assert {each.headers["authorization"] for each in bearers} == {"Bearer k"}
    assert {(each.headers.get("authorization"), each.headers["x-key"]) for each in owns} == {(None, "k")}
    (anonymous,) = received
    assert not {"authorization", "x-key"} & anonymous.headers.keys()


async def test_every_call_over_grpc_has_it() -> None:
    service = Service()
    async with serving(service) as url:
        for fields in ({"key": "k"}, {"key": "k", "key_header": "X-Key"}, {}):
            adapter = make(pool(protocol="oip-grpc", **fields), Address(url))
            await adapter.probe(PATIENCE)
            await adapter.aclose()
    bearer, own, anonymous = service.metadata
    assert bearer["authorization"] == "Bearer k"
    assert (own.get("authorization"), own["x-key"]) == (None, "k")
    assert not {"authorization", "x-key"} & anonymous.keys()
