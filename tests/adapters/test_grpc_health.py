"""The health service of gRPC, by gRPC's own client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from adapters import grpc_health
from adapters.grpc_health import Health
from adapters.http2.accepted import Server
from adapters.wire.protos import health

pytestmark = pytest.mark.realtime

PATIENCE = 300.0
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


class Peer:
    """A server with only this service, and a client."""

    def __init__(self, channel: grpc.aio.Channel, server: Server, state: dict[str, bool]) -> None:
        self.server = server
        self.state = state
        self._watch = channel.unary_stream(
            grpc_health.WATCH,
            health.HealthCheckRequest.SerializeToString,
            health.HealthCheckResponse.FromString,
        )

    def watch(self, service: str) -> Any:
        return self._watch(health.HealthCheckRequest(service=service), timeout=PATIENCE)


@asynccontextmanager
async def watched() -> AsyncIterator[Peer]:
    state = {"ready": False}
    service = Health(["a.Service"], lambda: state["ready"])
    server = Server(lambda call: service.calls[call.path](call))
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            yield Peer(channel, server, state)
    finally:
        await server.aclose()


@pytest.mark.parametrize("service", ["", "a.Service"])
async def test_each_change_is_sent(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_health, "PERIOD", 0.01)
    async with watched() as peer:
        call = peer.watch(service)
        for ready in (False, True, False):
            peer.state["ready"] = ready
            assert (await call.read()).status == (SERVING if ready else NOT_SERVING)
        call.cancel()


async def test_an_unknown_service_is_no_error() -> None:
    async with watched() as peer:
        call = peer.watch("nobody")
        assert (await call.read()).status == SERVICE_UNKNOWN
        assert not call.done()
        call.cancel()


async def test_a_server_that_drains_ends_its_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_health, "PERIOD", 0.01)
    async with watched() as peer:
        call = peer.watch("")
        await call.read()
        draining = asyncio.ensure_future(peer.server.drain(PATIENCE))
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await draining


async def test_watches_are_bounded_and_their_places_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_health, "MOST_WATCHES", 2)
    async with watched() as peer:
        calls = [peer.watch(""), peer.watch("")]
        for call in calls:
            await call.read()
        assert await peer.watch("").code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        calls[0].cancel()
        async with asyncio.timeout(PATIENCE):
            while (call := peer.watch("")) and await call.read() is grpc.aio.EOF:
                pass
        calls[1].cancel()
        call.cancel()
