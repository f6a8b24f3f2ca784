"""The live screen in a real browser: pools, endpoints, rates, and what an operator changes."""

import asyncio

import aiohttp
import pytest

from gateway.admin.console.live import MOST_VIEWERS
from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.gateway.admin.console.hostile import check_inert
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


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
            for _ in range(5):
                assert (await c.chat(key))[0] in (200, 401)  # a worker may not yet have the key
    await c.page.click("Drain")
    await c.page.shows("drained")
    await c.page.click("Undrain")
    await c.page.until("!document.querySelector('main').innerText.includes('drained')")
    await c.page.click("Pause")


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


async def test_the_error_of_an_endpoint_is_text(console: OpenConsole) -> None:
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "probe": {"interval": "100ms"}}]
    async with console(settings(auth={}, pools=pools)) as c:
        await c.open("/live")
        await c.page.shows("unhealthy")
        await check_inert(c.page)


async def test_a_total_outage_is_shown_by_cause_and_its_last_endpoint_is_drained_after_a_question(
    console: OpenConsole,
) -> None:
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "probe": {"interval": "100ms"}}]
    figure = """(name) => Number([...document.querySelectorAll('.numbers div')]
      .find((e) => e.querySelector('dt').textContent === name)?.querySelector('dd').textContent)"""
    async with console(settings(auth={}, pools=pools)) as c:
        await c.open("/live")
        await c.page.shows("unhealthy")
        async with asyncio.timeout(300):
            while not await c.page.evaluate(figure, "failures a second") > 0:
                assert (await c.chat())[0] == 503
        await c.page.shows("503 no_healthy_endpoint")
        await c.page.choose("By", "models")
        await c.page.until("document.querySelector('main').innerText.match(/chat\\s+[.0-9]+\\s+[.0-9]+/) !== null")
        await check_accessibility(c.page)
        await c.page.click("Drain")
        await c.page.shows("Drain the last endpoint?")
        await c.page.click("Drain it")
        await c.page.shows("drained")
    c.page.refused.clear()  # the 409 that the question answers
