"""The live screen in a real browser: pools, endpoints, rates, and what an operator changes."""

import asyncio
from typing import Any

import aiohttp
import pytest

from gateway.console.live import MOST_ENDPOINTS, MOST_VIEWERS, frame_of
from tests.gateway.console.conftest import ConsoleRig, OpenConsole, settings
from tests.gateway.console.hostile import HOSTILE, check_inert
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream


async def chats(c: ConsoleRig, key: str, count: int) -> None:
    """Send chats. A worker may not yet have the key."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
        for _ in range(count):
            async with http.post(f"{c.g.url}/v1/chat/completions", json=body) as response:
                assert response.status in (200, 401)


@pytest.mark.processes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("workers", [1, 2])
async def test_an_operator_watches_the_load_and_drains_an_endpoint(console: OpenConsole, workers: int) -> None:
    async with upstream() as up, upstream() as other:
        pools = [{"name": "main", "endpoints": [up.url, other.url]}]
        async with console(settings(workers=workers, pools=pools)) as c:
            await watch_and_drain(c, up.url)


async def watch_and_drain(c: ConsoleRig, url: str) -> None:
    await c.open("/live")
    await c.sign_in(await c.issue(role="operator"))
    await c.page.shows("requests a second")
    await c.page.shows(url.removeprefix("http://"))
    await check_accessibility(c.page)
    key = await c.issue()
    rated = "document.querySelector('main').innerText.match(/([.0-9]+) tokens\\/s/)?.[1] > 0"
    async with asyncio.timeout(300):
        while not await c.page.evaluate(rated):
            await chats(c, key, 5)
    await c.page.click("Drain")
    await c.page.shows("drained")
    await c.page.click("Undrain")
    await c.page.until("!document.querySelector('main').innerText.includes('drained')")
    await c.page.click("Pause")


@pytest.mark.processes
@pytest.mark.timeout(1800)
async def test_streams_are_bounded_and_do_not_delay_the_end(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c, aiohttp.ClientSession() as http:
        url = f"{c.g.admin}/console/api/live"
        viewers = [await http.get(url) for _ in range(MOST_VIEWERS)]
        for viewer in viewers:
            assert (await viewer.content.readline()).startswith(b'data: {"at":')
        async with http.get(url) as refused:
            assert refused.status == 503
        viewers.pop().close()
        async with asyncio.timeout(300):
            while True:
                async with http.get(url) as again:
                    if again.status == 200:
                        break
        assert await c.g.stop() == 0


@pytest.mark.processes
@pytest.mark.timeout(1800)
async def test_the_error_of_an_endpoint_is_text(console: OpenConsole) -> None:
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "probe": {"interval": "100ms"}}]
    async with console(settings(auth={}, pools=pools)) as c:
        await c.open("/live")
        await c.page.shows("unhealthy")
        await check_inert(c.page)


def endpoint(number: int, **changes: Any) -> dict[str, Any]:
    fine = {"pool": "main", "endpoint": f"main/{number}", "health": "healthy", "breaker": "closed", "in_flight": 1}
    return {**fine, **changes}


def test_a_frame_is_bounded_and_has_the_failing_endpoints() -> None:
    endpoints = [endpoint(number) for number in range(3 * MOST_ENDPOINTS)]
    endpoints.append(endpoint(9999, health="unhealthy", probe_error=HOSTILE))
    (pool,) = frame_of({"accepting": True, "in_flight": 3, "endpoints": endpoints}, 1.0)["pools"]
    assert pool["endpoints"][0]["probe_error"] == HOSTILE
    assert (len(pool["endpoints"]), pool["size"], pool["in_flight"]) == (MOST_ENDPOINTS, len(endpoints), len(endpoints))


def test_a_frame_of_no_worker_is_empty() -> None:
    assert frame_of({}, 1.0) == {"at": 1.0, "accepting": False, "in_flight": 0, "pools": [], "workers": []}


def test_a_frame_has_the_replicas_of_a_pool_at_zero_and_the_reason() -> None:
    scale = {
        "pool": "main", "replicas": 0, "ready": 0, "starting": 0, "desired": 0, "min": 0, "max": 2,
        "reason": "no request for 600 s", "failure": "", "start_seconds": 3.5,
    }  # fmt: skip
    (pool,) = frame_of({"accepting": True, "endpoints": [], "replicas": [scale]}, 1.0)["pools"]
    assert (pool["pool"], pool["size"], pool["endpoints"]) == ("main", 0, [])
    assert (pool["replicas"]["desired"], pool["replicas"]["reason"]) == (0, "no request for 600 s")
