"""Rollouts, experiments and shadows: evidence over time, and orders by clicking."""

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


def configuration(url: str) -> dict[str, Any]:
    pools = [{"name": name, "endpoints": [url]} for name in ("old", "new")]
    rollout = {
        "name": "to-new", "from": {"pool": "old"}, "to": {"pool": "new"}, "warmup": "0s",
        "steps": [{"weight": "20%", "for": "1h"}, {"weight": "50%", "for": "1h"}],
        "back_if": [{"metric": "failures"}],
    }  # fmt: skip
    experiment = {"name": "sizes", "sticky": "request", "arms": ["old", "new"], "metric": "solved"}
    shadow = {"to": "new", "share": "100%", "compare": {"text": ["normalized"]}}
    return settings(
        url,
        pools=pools,
        feedback=[{"name": "solved", "within": "24h"}],
        models=[
            {"name": "chat", "routes": [{"rollout": rollout}]},
            {"name": "tried", "routes": [{"experiment": experiment}]},
            {"name": "copied", "routes": [{"to": "old", "shadow": shadow}]},
        ],
    )


async def status(c: ConsoleRig, key: str, path: str) -> str:
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{c.g.admin}/admin/{path}") as reply:
        return str((await reply.json())["status"])


async def order(c: ConsoleRig, key: str, verb: str, name: str, path: str, expected: str) -> None:
    """Order with a click and a confirmation. A click on Cancel orders nothing."""
    await c.page.click(f"{verb} {name}")
    await c.page.until("!!document.querySelector('dialog[open]')")
    await check_accessibility(c.page)
    before = await status(c, key, path)
    await c.page.click("Cancel")
    await c.page.until("!document.querySelector('dialog[open]')")
    assert await status(c, key, path) == before
    await c.page.click(f"{verb} {name}")
    await c.page.click("Confirm")
    async with asyncio.timeout(300):
        while await status(c, key, path) != expected:
            await asyncio.sleep(0.05)
    shown = "(name, s) => document.querySelector(`article[aria-label='${name}'] .badge`).textContent === s"
    await c.page.until(shown, name, expected)


async def test_an_operator_pauses_continues_and_takes_back(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        key = await c.issue(role="operator")
        for model in ("chat", "tried", "copied") * 8:
            assert (await c.chat(key, model=model))[0] == 200
        await c.open("/rollouts")
        await c.sign_in(key)
        await c.page.shows("to-new")
        await c.page.until("document.querySelectorAll('.chart canvas').length >= 3")
        for text in ("Weight of the new arm", "Shares of the arms", "copied", "undecided"):
            await c.page.shows(text)
        await check_accessibility(c.page)
        for verb, expected in (("Pause", "held"), ("Continue", "running"), ("Take back", "back")):
            await order(c, key, verb, "to-new", "rollouts/to-new", expected)
        for verb, expected in (("Pause", "held"), ("Stop", "stopped")):
            await order(c, key, verb, "sizes", "experiments/sizes", expected)
