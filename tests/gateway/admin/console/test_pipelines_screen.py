"""Pipelines: the graph with live counts, and the path of a request."""

from typing import Any

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
CASCADE = [{"model": "small", "accept_if": "finish == 'length'"}, {"model": "large"}]
PIPELINE: dict[str, Any] = {
    "steps": [
        {"name": "first", "model": "small"},
        {"name": "question", "in": {"draft": "first.text"}, "template": "Better: {{ draft }}"},
        {"name": "answer", "in": {"prompt": "question.text"}, "cascade": CASCADE},
    ]
}


async def test_a_person_follows_a_request_through_a_pipeline(console: OpenConsole) -> None:
    async with upstream() as up:
        models = [{"name": name, "routes": [{"to": "main"}]} for name in ("small", "large")]
        async with console(
            settings(
                up.url,
                auth={},
                tenants=[{"name": "acme", "models": ["*"]}],
                models=[{"name": "piped", "pipeline": PIPELINE}, *models],
            )
        ) as c:
            await c.open("/pipelines")
            await c.page.shows("first")
            assert await c.page.evaluate("document.querySelectorAll('.graph .node').length") == 5
            await check_accessibility(c.page)
            sent, id = await c.chat(model="piped")
            assert sent == 200
            counts = "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[4].textContent)"
            await c.page.until(f"{counts}.join() === '1,1,1,1,1'")
            await c.page.fill("Id of a request", id)
            await c.page.click("Show its path")
            await c.page.until("document.querySelectorAll('.graph .passed').length === 5")
            await c.page.shows("answer.large")
            await check_accessibility(c.page)


CHOSEN: dict[str, Any] = {
    "steps": [
        {"name": "draft", "cascade": CASCADE},
        {
            "name": "last",
            "in": {"draft": "draft.text"},
            "switch": [
                {"if": "draft.text == 'never'", "model": "small"},
                {"else": True, "template": "Better: {{ draft }}"},
            ],
        },
        {"name": "answer", "in": {"prompt": "last.text"}, "model": "large"},
    ]
}


async def test_a_stored_request_shows_the_reasons_and_the_cost_of_its_steps(console: OpenConsole) -> None:
    price = {"prompt": "3 usd/1M", "completion": "15 usd/1M"}
    async with upstream() as up:
        models = [{"name": name, "routes": [{"to": "main"}], "price": price} for name in ("small", "large")]
        piped = {"name": "piped", "pipeline": CHOSEN}
        tenants = [{"name": "acme", "models": ["*"]}]
        async with console(
            settings(up.url, requests={"flush": "100ms"}, models=[piped, *models], tenants=tenants)
        ) as c:
            key, operator = await c.issue(), await c.issue(role="operator")
            sent, id = await c.chat(key, model="piped")
            assert sent == 200
            await c.until_stored(1, operator)
            async with aiohttp.ClientSession(headers={"authorization": f"Bearer {operator}"}) as http:
                steps = (await (await http.get(f"{c.g.admin}/admin/requests/{id}")).json())["steps"]
            whys = {step["step"]: step.get("why") for step in steps}
            assert whys["draft.small"] == "not accepted if finish == 'length'"
            assert whys["last"] == "else"
            assert all(step["at_ms"] >= 0 for step in steps)
            assert sum(step.get("prompt_tokens", 0) for step in steps) == 15
            await c.open(f"/requests/{id}")
            await c.sign_in(operator)
            await c.page.shows("The model is a pipeline")
            await c.page.shows("not accepted if finish == 'length'")
            await c.page.shows("Step draft.small")
            await c.page.shows("0.00036 usd")
            await check_accessibility(c.page)
            await c.page.click("Its path in the graph")
            await c.page.until("document.querySelectorAll('.graph .passed').length > 3")
            await c.page.shows("not accepted if finish == 'length'")
            await check_accessibility(c.page)
