"""Endpoints that come and go while requests are under way, in a real gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from adapters.http1.server import Server
from tests.support.kubernetes import api_server, endpoint, slice_of
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, stream, upstream, whole


def configuration(pool: dict[str, Any], **changes: Any) -> dict[str, Any]:
    probe = {"interval": "100ms", "unhealthy_after": 1}
    return {
        "pools": [{"name": "up", "probe": probe, **pool}],
        "models": [{"name": "chat", "routes": [{"to": "up", "retry": {"attempts": 3, "budget": "100%"}}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **changes,
    }


class Load:
    """Requests without a pause, some streamed, and their outcomes."""

    def __init__(self, g: GatewayProcess, key: str) -> None:
        self.answered = 0
        self.failures: list[tuple[int, str]] = []
        self._g, self._key = g, key
        self._stopping = False

    async def _one(self, http: aiohttp.ClientSession, streamed: bool) -> None:
        body = {"model": "chat", "stream": streamed, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {self._key}"}
        async with http.post(f"{self._g.url}/v1/chat/completions", json=body, headers=headers) as response:
            text = await response.text()
            if response.status != 200 or (streamed and not text.rstrip().endswith("[DONE]")):
                self.failures.append((response.status, text))
            self.answered += 1

    async def _go_on(self, number: int) -> None:
        async with aiohttp.ClientSession() as http:
            while not self._stopping:
                await self._one(http, streamed=number % 2 == 0)

    @asynccontextmanager
    async def running(self, clients: int = 6) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._go_on(number)) for number in range(clients)]
        try:
            yield
        finally:
            self._stopping = True
            await asyncio.gather(*tasks)

    async def more(self, count: int = 20) -> None:
        """Wait until that many more were answered."""
        goal = self.answered + count
        async with asyncio.timeout(300):
            while self.answered < goal:
                await asyncio.sleep(0.02)


def id_of(state: dict[str, Any], url: str) -> str:
    endpoint: str = next(e["endpoint"] for e in state["endpoints"] if e["address"] == url)
    return endpoint.removeprefix("up/")


async def test_draining_adding_and_removing_under_load_fails_no_request(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two, three = [await stack.enter_async_context(upstream(name)) for name in ("one", "two", "three")]
        for up in (one, two, three):
            up.behaviour = slowly
        g = await stack.enter_async_context(gateway(tmp_path, configuration({"endpoints": [one.url, two.url]})))
        key = await g.key()
        await g.until_status(key, 200)
        first, second = id_of(await g.state(), one.url), id_of(await g.state(), two.url)
        load = Load(g, key)
        async with load.running():
            await load.more()
            status, drained = await g.administer("POST", f"/admin/pools/up/endpoints/{first}/drain")
            assert (status, drained["drained"]) == (200, True)
            await g.until(f"[e['in_flight'] for e in s['endpoints'] if e['endpoint'] == 'up/{first}'] == [0]")
            before = len(one.received)
            await load.more()
            assert len(one.received) == before
            assert (await g.administer("POST", "/admin/pools/up/endpoints", {"url": three.url, "weight": 2}))[0] == 200
            await g.until("sum(e['health'] == 'healthy' for e in s['endpoints']) == 3")
            assert (await g.administer("DELETE", f"/admin/pools/up/endpoints/{second}"))[0] == 200
            before = len(three.received)
            await load.more()
            assert len(three.received) > before
            assert (await g.administer("POST", f"/admin/pools/up/endpoints/{first}/undrain"))[0] == 200
            await load.more()
            assert (await g.administer("DELETE", f"/admin/pools/up/endpoints/{id_of(await g.state(), three.url)}"))[
                0
            ] == 200
            await load.more()
        assert load.failures == []
        status, listed = await g.administer("GET", "/admin/pools")
        (pool,) = listed["pools"]
        assert [(e["address"], e["origin"]) for e in pool["endpoints"]] == [(one.url, "configuration")]
        status, refused = await g.administer("POST", f"/admin/pools/up/endpoints/{first}/drain")
        assert (status, refused["error"]["code"]) == (409, "last_endpoint")
        await g.until_idle()


async def slowly(body: dict[str, Any]) -> Any:
    await asyncio.sleep(0.01)
    return stream("hello there", gap=0.01) if body.get("stream") else whole("hello")


async def test_a_dead_endpoint_gets_no_requests_after_a_missed_removal(tmp_path: Path) -> None:
    """The API server never reports the deletion of the pod, and its watch stays open."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_server())
        dead, alive = Server(Upstream("dead")), await stack.enter_async_context(upstream("alive"))
        _, port = await dead.listen_tcp("127.0.0.1", 0)
        await api.put(slice_of("a", endpoint("127.0.0.1", uid="1"), port=port))
        await api.put(slice_of("b", endpoint("127.0.0.1", uid="2"), port=int(alive.url.rpartition(":")[2])))
        kubernetes = {"service": "vllm", "namespace": "models", "server": api.url, "resync": "1h"}
        g = await stack.enter_async_context(gateway(tmp_path, configuration({"discover": {"kubernetes": kubernetes}})))
        key = await g.key()
        await g.until_status(key, 200)
        await g.until("[e['health'] for e in s['endpoints']] == ['healthy'] * 2")
        load = Load(g, key)
        async with load.running():
            await load.more()
            await dead.aclose()
            await api.delete("a", silently=True)
            await g.until("sorted(e['health'] for e in s['endpoints']) == ['healthy', 'unhealthy']")
            await load.more()
        assert all(status == 200 and "error" in text for status, text in load.failures)  # streams that it broke
        assert {e["origin"] for e in (await g.state())["endpoints"]} == {"discovery"}
