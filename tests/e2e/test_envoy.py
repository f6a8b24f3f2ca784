"""The endpoint picker behind a real Envoy: the cases of the Inference Extension's conformance suite that its data plane
has (`conformance/tests`), and those of a gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loadtests.peers.envoy_picker import Cluster, Mode
from tests.servers.envoy import envoy
from tests.servers.started import Started
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, stream, upstream

pytestmark = pytest.mark.servers
BODY: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Site:
    """Three servers, a gateway whose picker knows them, and Envoy in front."""

    servers: list[Upstream]
    gateway: GatewayProcess
    envoy: Started
    key: str

    @property
    def url(self) -> str:
        return f"{self.envoy.url(1)}/v1/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    async def chat(self, headers: dict[str, str] | None = None, **fields: Any) -> tuple[int, bytes, dict[str, str]]:
        """The status, the body and the headers of a chat through Envoy."""
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.url, json={**BODY, **fields}, headers={**self.headers, **(headers or {})}) as response,
        ):
            return response.status, await response.read(), {k.lower(): v for k, v in response.headers.items()}

    @property
    def received(self) -> list[int]:
        return [len(server.received) for server in self.servers]


def address(server: Upstream) -> str:
    return server.url.removeprefix("http://")


@asynccontextmanager
async def site(
    folder: Path,
    *,
    cluster: Cluster = "override_host",
    mode: Mode = "FULL_DUPLEX_STREAMED",
    subset: list[int] | None = None,
    dead: bool = False,
    **changes: Any,
) -> AsyncIterator[Site]:
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "endpoint_picker": "127.0.0.1:0"}
    if cluster == "original_dst":
        listen["endpoint_picker_alternatives"] = 0  # type: ignore[assignment]
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(upstream(name)) for name in ("one two", "three four", "five six")]
        urls = [server.url for server in servers] + (["http://127.0.0.1:9"] if dead else [])
        pool: dict[str, Any] = {"name": "main", "endpoints": urls, "probe": None, "balance": {"by": "round_robin"}}
        base: dict[str, Any] = {
            "listen": listen,
            "pools": [pool | changes.pop("pool", {})],
            "models": [{"name": "chat", "routes": [{"to": "main"}]}],
            "tenants": [{"name": "acme", "models": ["chat"]}],
        }
        running = await stack.enter_async_context(gateway(folder, {**base, **changes}))
        addresses = [url.removeprefix("http://") for url in urls]
        named = None if subset is None else [addresses[index] for index in subset]
        started = stack.enter_context(envoy(running.picker, addresses, cluster=cluster, mode=mode, subset=named))
        yield Site(servers, running, started, await running.key())


CLUSTERS: list[Cluster] = ["override_host", "original_dst"]
MODES: list[Mode] = ["FULL_DUPLEX_STREAMED", "BUFFERED"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cluster", CLUSTERS)
async def test_envoy_follows_the_picker(tmp_path: Path, cluster: Cluster, mode: Mode) -> None:
    async with site(tmp_path, cluster=cluster, mode=mode) as at:
        for turn in range(6):
            status, body, headers = await at.chat()
            assert status == 200, body
            answers = {server.text for server in at.servers}
            assert json.loads(body)["choices"][0]["message"]["content"] in answers
            assert headers["x-headrace-model"] == "chat"
            assert sum(at.received) == turn + 1
        assert at.received == [2, 2, 2]
        status, body, headers = await at.chat(stream=True)
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert body.endswith(b"data: [DONE]\n\n")
        received = [fields for server in at.servers for fields in server.headers]
        assert not [fields for fields in received if "authorization" in fields]
        status, body, _ = await at.chat(messages=[{"role": "user", "content": "x" * 500_000}])
        assert status == 200, body
        await at.gateway.until_idle()


@pytest.mark.parametrize("mode", MODES)
async def test_refusals_reach_the_client_in_the_shape_of_the_door(tmp_path: Path, mode: Mode) -> None:
    tenants = [{"name": "acme", "models": ["chat"], "limits": {"requests": "1/min"}}]
    async with site(tmp_path, mode=mode, tenants=tenants) as at:
        assert (await at.chat())[0] == 200
        status, body, headers = await at.chat()
        assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")
        assert headers["content-type"] == "application/json"
        assert 0 < int(headers["retry-after"]) <= 60
        assert sum(at.received) == 1
        await at.gateway.until_idle()


async def test_a_subset_limits_the_pick(tmp_path: Path) -> None:
    async with site(tmp_path, subset=[1]) as at:
        assert {(await at.chat())[0] for _ in range(6)} == {200}
        assert at.received == [0, 6, 0]
        state = await at.gateway.until_idle()
        assert len(state["endpoints"]) == 3


async def test_envoy_tries_the_alternatives_and_reports_the_endpoint_that_served(tmp_path: Path) -> None:
    async with site(tmp_path, dead=True) as at:
        answers = [await at.chat() for _ in range(24)]
        assert {status for status, _, _ in answers} == {200}
        state = await at.gateway.until_idle()
        dead = next(each for each in state["endpoints"] if each["address"].endswith(":9"))
        assert dead["breaker"] == "open"
        assert dead["endpoint"] not in {headers["x-headrace-endpoint"] for _, _, headers in answers}
        assert sum(at.received) == 24


async def test_an_endpoint_that_cannot_be_reached_is_a_truthful_error(tmp_path: Path) -> None:
    async with site(tmp_path, cluster="original_dst", dead=True) as at:
        answers = [await at.chat() for _ in range(8)]
        failed = [(status, body) for status, body, _ in answers if status != 200]
        assert failed
        for status, body in failed:
            assert (status, json.loads(body)["error"]["message"]) == (502, "The endpoint could not be reached.")
        await at.gateway.until_idle()


async def test_a_stream_arrives_as_it_is_produced_and_ends_with_its_client(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        bodies: list[Any] = []

        async def slow(body: dict[str, Any]) -> Any:
            response = stream("word " * 2000, gap=0.02)
            bodies.append(response.body)
            return response

        for server in at.servers:
            server.behaviour = slow
        async with (
            aiohttp.ClientSession(headers=at.headers) as http,
            http.post(at.url, json={**BODY, "stream": True}) as response,
        ):
            first = await response.content.readany()
            assert first.startswith(b"data: ")
            assert b"[DONE]" not in first
            await at.gateway.until("sum(e['in_flight'] for e in s['endpoints']) == 1")
            response.close()
        await at.gateway.until_idle()
        async with asyncio.timeout(300):
            while not bodies[0].closed:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("fail_open", [False, True])
async def test_a_lost_picker_fails_closed_or_open_as_the_pool_demands(tmp_path: Path, fail_open: bool) -> None:
    async with upstream() as server:
        # Envoy can fail open only while it holds the whole body.
        mode: Mode = "BUFFERED" if fail_open else "FULL_DUPLEX_STREAMED"
        with envoy("127.0.0.1:9", [address(server)], fail_open=fail_open, mode=mode) as started:
            url = f"{started.url(1)}/v1/chat/completions"
            async with aiohttp.ClientSession() as http, http.post(url, json=BODY) as response:
                await response.read()
                assert (response.status == 200) is fail_open
        assert len(server.received) == fail_open


async def hits(at: Site, url: str) -> float:
    """The share of requests whose long beginning their server has received before."""
    before: list[set[str]] = [set() for _ in at.servers]
    hit = total = 0
    async with aiohttp.ClientSession(headers=at.headers) as http:
        for turn in range(8):
            for user in range(11):
                messages = [{"role": "system", "content": f"{user} " * 2000}, {"role": "user", "content": str(turn)}]
                seen = at.received
                async with http.post(url, json={**BODY, "messages": messages}) as response:
                    assert response.status == 200
                    await response.read()
                index = next(i for i, count in enumerate(at.received) if count != seen[i])
                hit += str(user) in before[index]
                total += 1
                before[index].add(str(user))
    return hit / total


async def test_prefix_affinity_raises_hits_as_in_the_bare_gateway(tmp_path: Path) -> None:
    shares: dict[str, tuple[float, float]] = {}
    for by in ("prefix_affinity", "round_robin"):
        folder = tmp_path / by
        folder.mkdir()
        async with site(folder, pool={"balance": {"by": by}}) as at:
            bare = await hits(at, f"{at.gateway.url}/v1/chat/completions")
        (folder / "picker").mkdir()
        async with site(folder / "picker", pool={"balance": {"by": by}}) as at:
            shares[by] = await hits(at, at.url), bare
    picked, bare = shares["prefix_affinity"]
    assert picked > 0.75  # the first request of each user misses: at most 0.875
    assert abs(picked - bare) < 0.1
    assert shares["round_robin"][0] < picked
