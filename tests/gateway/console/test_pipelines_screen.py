"""Pipelines: the graph with live counts, and the path of a request."""

from typing import Any

import aiohttp
import pytest

from tests.gateway.console.conftest import OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
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
            async with aiohttp.ClientSession() as http:
                body = {"model": "piped", "messages": [{"role": "user", "content": "hi"}]}
                async with http.post(f"{c.g.admin}/admin/playground/chat", json=body) as response:
                    assert response.status == 200, await response.text()
                    id = response.headers["x-request-id"]
            counts = "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[4].textContent)"
            await c.page.until(f"{counts}.join() === '1,1,1,1,1'")
            await c.page.fill("Id of a request", id)
            await c.page.click("Show its path")
            await c.page.until("document.querySelectorAll('.graph .passed').length === 5")
            await c.page.shows("answer.large")
            await check_accessibility(c.page)
            await c.page.resize(360)
            assert await c.page.evaluate("document.documentElement.scrollWidth") <= 360
