"""Rollouts, experiments and shadows: evidence over time, and orders by clicking."""

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.gateway.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def configuration(url: str) -> dict[str, Any]:
    pools = [{"name": name, "endpoints": [url]} for name in ("old", "new")]
    rollout = {
        "name": "to-new", "from": {"pool": "old"}, "to": {"pool": "new"}, "warmup": "0s",
        "steps": [{"weight": "20%", "for": "1h"}, {"weight": "50%", "for": "1h"}],
        "back_if": [{"metric": "failures"}],
    }  # fmt: skip
    return settings(
        url,
        pools=pools,
        models=[{"name": "chat", "routes": [{"rollout": rollout}]}],
    )


async def status(c: ConsoleRig, key: str) -> str:
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{c.g.admin}/admin/rollouts/to-new") as reply:
        return str((await reply.json())["status"])


async def test_an_operator_pauses_continues_and_takes_back(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        key = await c.issue(role="operator")
        chat = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
            for _ in range(20):
                async with http.post(f"{c.g.url}/v1/chat/completions", json=chat) as response:
                    assert response.status == 200
        await c.open("/rollouts")
        await c.sign_in(key)
        await c.page.shows("to-new")
        await c.page.until("document.querySelectorAll('.chart canvas').length >= 2")
        await c.page.shows("Weight of the new arm")
        await check_accessibility(c.page)
        for verb, expected in (("Pause", "held"), ("Continue", "running"), ("Take back", "back")):
            await c.page.click(f"{verb} to-new")
            await c.page.until("!!document.querySelector('dialog[open]')")
            await check_accessibility(c.page)
            await c.page.click("Cancel")
            await c.page.until("!document.querySelector('dialog[open]')")
            await c.page.click(f"{verb} to-new")
            await c.page.click("Confirm")
            async with asyncio.timeout(300):
                while await status(c, key) != expected:
                    await asyncio.sleep(0.05)
            await c.page.until("(s) => document.querySelector('article .badge').textContent === s", expected)
        await c.page.resize(360)
        assert await c.page.evaluate("document.documentElement.scrollWidth") <= 360
