"""Pools that detect the protocols of their endpoints."""

import asyncio
import json
import logging
from random import Random
from typing import Any

import pytest

from adapters.call import Call
from adapters.detection.auto import AutoAdapter
from adapters.errors import Unavailable, Unsupported
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.types import Deadline
from config.loader import read
from config.schema.config import Config, ProbeConfig
from gateway.admin.api.pools import describe_pools
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import check
from gateway.traffic.pool import Pool
from tests.adapters.detection.systems import META, owned
from tests.support.gateways import chat, config, infer
from tests.support.upstreams import whole

JSON = [("content-type", "application/json")]
PROBE = ProbeConfig(interval="100s", timeout="20s", unhealthy_after=1)
TENSORS = {
    "/v2": {"name": "triton", "version": "2.51.0"},
    "/v2/health/ready": {},
    "/v2/models/chat": META,
    "POST /v2/repository/index": [{"name": "chat", "state": "READY"}],
    "POST /v2/models/chat/infer": {"model_name": "chat", "model_version": "1", "outputs": []},
}
TEXT = {"/v1/models": owned("vllm", "chat"), "/version": {"version": "1"}, "/health": {}}


class Changing:
    """A server at one address, that may become another."""

    def __init__(self, paths: dict[str, Any]) -> None:
        self.paths = paths
        self.url = ""
        self.received = 0

    async def __call__(self, request: Request) -> Response:
        await request.read()
        self.received += 1
        name = request.path if request.method == "GET" else f"POST {request.path}"
        if name == "POST /v1/chat/completions" and "/v1/models" in self.paths:
            return whole("hello")
        if name not in self.paths:
            return Response(404, JSON, b"{}")
        return Response(200, JSON, json.dumps(self.paths[name]).encode())


class Setting:
    """A fleet with several servers, whose health checks the test triggers."""

    def __init__(self, *servers: Changing) -> None:
        self.servers = servers
        self.fleet = Fleet(Random(1), asyncio.get_running_loop().time)
        self.pool: Pool

    async def __aenter__(self) -> "Setting":
        self._listening = []
        for server in self.servers:
            listening = Server(server)
            host, port = await listening.listen_tcp("127.0.0.1", 0)
            server.url = f"http://{host}:{port}"
            self._listening.append(listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fleet.aclose()
        for listening in self._listening:
            await listening.aclose()

    def configuration(self, **more: Any) -> Config:
        urls = [server.url for server in self.servers]
        slow = {"interval": "100s", "timeout": "20s"}
        return config(pools=[{"name": "main", "protocol": "auto", "endpoints": urls, "probe": slow, **more}])

    def use(self, configuration: Config) -> list[Endpoint]:
        self.pool = self.fleet.commit(self.fleet.prepare(configuration))["main"]
        return self.pool.endpoints

    async def checked(self, **more: Any) -> list[Endpoint]:
        endpoints = self.use(self.configuration(**more))
        for endpoint in endpoints:
            await check(endpoint, PROBE)
        return endpoints


def soon() -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + 30, 30, 30))


def detected(fleet: Fleet) -> list[Any]:
    return [endpoint["detected"] for endpoint in describe_pools(fleet, 0.0)[0]["endpoints"]]


async def test_an_undetected_endpoint_counts_as_unhealthy() -> None:
    async with Setting(Changing(TEXT)) as setting:
        (endpoint,) = setting.use(setting.configuration())
        assert (endpoint.health, endpoint.probe_error) == ("unhealthy", "Its protocol is not detected yet.")
        with pytest.raises(Unavailable, match="no healthy endpoint"):
            await setting.pool.call(chat(), soon())
        await check(endpoint, PROBE)
        assert endpoint.health == "healthy"
        assert b"hello" in ((await setting.pool.call(chat(), soon())).body or b"")
        detection = {"system": "vLLM", "version": "1", "protocol": {"name": "openai", "dialect": "vllm"}}
        assert detected(setting.fleet) == [detection]
        assert describe_pools(setting.fleet, 0.0)[0]["disagree"] is False


async def test_an_unknown_server_is_reported_until_it_is_detected() -> None:
    async with Setting(Changing({})) as setting:
        (endpoint,) = await setting.checked()
        assert endpoint.probe_error == "The endpoint's protocol cannot be detected: set `protocol`."
        with pytest.raises(Unavailable) as refused:
            await setting.pool.call(chat(), soon())
        assert refused.value.retry_after
        setting.servers[0].paths = TEXT
        await check(endpoint, PROBE)
        assert b"hello" in ((await setting.pool.call(chat(), soon())).body or b"")


async def test_a_pool_with_different_servers_is_reported_and_each_gets_its_own_protocol(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Setting(Changing(TEXT), Changing(TENSORS)) as setting:
        with caplog.at_level(logging.WARNING):
            text, tensors = await setting.checked()
        assert "pool main: its endpoints speak different protocols" in caplog.text
        assert describe_pools(setting.fleet, 0.0)[0]["disagree"] is True
        assert [detection["protocol"]["name"] for detection in detected(setting.fleet)] == ["openai", "oip-http"]
        assert (await text.adapter.call(chat(), soon())).status == 200
        assert (await tensors.adapter.call(infer(), soon())).form.wire == "oip-http"
        with pytest.raises(Unsupported):
            await tensors.adapter.call(chat(), soon())


async def test_another_server_at_the_same_address_is_detected_after_a_failed_check() -> None:
    async with Setting(Changing(TEXT)) as setting:
        (endpoint,) = await setting.checked()
        setting.servers[0].paths = TENSORS
        await check(endpoint, PROBE)
        assert endpoint.probe_error
        await check(endpoint, PROBE)
        assert endpoint.health == "healthy"
        assert (await setting.pool.call(infer(), soon())).form.wire == "oip-http"


async def test_a_returning_server_gets_its_adapter_back_without_needless_requests() -> None:
    async with Setting(Changing(TEXT)) as setting:
        (endpoint,) = await setting.checked()
        assert isinstance(endpoint.adapter, AutoAdapter)
        spoken, requests = endpoint.adapter._adapter, setting.servers[0].received
        await check(endpoint, PROBE)
        assert setting.servers[0].received == requests + 1
        setting.servers[0].paths = {}
        await check(endpoint, PROBE)
        setting.servers[0].paths = TEXT
        await check(endpoint, PROBE)
        assert (endpoint.health, endpoint.adapter._adapter) == ("healthy", spoken)


async def test_a_reload_detects_changed_pools_only() -> None:
    async with Setting(Changing(TEXT)) as setting:
        (endpoint,) = await setting.checked()
        (same,) = setting.use(setting.configuration(balance={"by": "round_robin"}))
        assert (same, same.health) == (endpoint, "healthy")
        (other,) = setting.use(setting.configuration(max_connections=7))
        assert (other is endpoint, other.health) == (False, "unhealthy")


async def test_a_look_that_takes_longer_than_a_check_may_is_not_begun_anew() -> None:
    gate = asyncio.Event()

    class Slow(Changing):
        async def __call__(self, request: Request) -> Response:
            if request.path == "/v1/models":
                await gate.wait()
            return await super().__call__(request)

    async with Setting(Slow(TEXT)) as setting:
        (endpoint,) = setting.use(setting.configuration())
        await check(endpoint, ProbeConfig(interval="100s", timeout="200ms"))
        assert endpoint.probe_error
        gate.set()
        await check(endpoint, PROBE)
        assert endpoint.health == "healthy"


def test_without_health_checks_nothing_is_detected(tmp_path: Any) -> None:
    path = tmp_path / "auto.yaml"
    path.write_text(
        "version: 1\n"
        "pools:\n  - {name: a, protocol: auto, probe: null, endpoints: [http://127.0.0.1:9]}\n"
        "models:\n  - {name: chat, routes: [{to: a}]}\n"
        "tenants:\n  - {name: acme, models: [chat]}\n"
    )
    assert [problem.message for problem in read(path).problems] == [
        "protocol auto needs the probe: health checks detect the protocol of an endpoint"
    ]
