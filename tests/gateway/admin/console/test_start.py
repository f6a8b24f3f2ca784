"""A new user's way in a real browser: a key, an answer, and why the request went where it went."""

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.gateway.admin.console.hostile import HOSTILE, check_inert, hostile_texts
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


def configuration(url: str, **changes: Any) -> dict[str, Any]:
    price = {"prompt": "3 usd/1M", "completion": "15 usd/1M"}
    models = [{"name": "chat", "routes": [{"to": "main"}], "price": price}]
    return settings(url, requests={"flush": "100ms"}, usage={}, models=models, **changes)


async def test_a_new_user_sees_the_route_and_the_cost_of_a_request(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url, auth={"demo_key": True})) as c:
        await c.open()
        await c.page.shows("The demo key: on this machine only")
        await check_accessibility(c.page)
        key = await c.page.text(".code pre")
        assert key in c.g.output
        for language in ("Python", "TypeScript", "curl"):
            await c.page.click(language)
            await c.page.until("(key) => document.querySelectorAll('.code pre')[1].innerText.includes(key)", key)
        command = await c.page.evaluate("document.querySelectorAll('.code pre')[1].innerText")
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", f"{command} -sS --fail", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await shell.communicate()
        assert json.loads(out)["choices"], out
        await c.page.click("Send", "button")
        await c.page.shows("attempt")
        await c.page.until("document.querySelector('.answer').innerText.length > 0")
        await c.page.until("document.body.innerText.match(/0\\.000[0-9]+ usd/)")
        await check_accessibility(c.page)
        await c.page.click("Why it went there")
        await c.page.until(
            "document.body.innerText.includes('Pools in order') || document.body.innerText.includes('no request')"
        )
        while "Pools in order" not in await c.page.text():
            await c.page.click("Try again")
            await asyncio.sleep(0.1)
        shown = await c.page.text()
        assert "every request" in shown
        assert re.search(r"0\.000\d+ usd", shown)
        assert "Attempt 1 at" in shown
        await check_accessibility(c.page)


async def test_a_tenant_s_admin_issues_its_own_key(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        await c.open("/start")
        await c.sign_in(await c.issue(role="tenant-admin"))
        await c.page.click("Issue a key for a day")
        await c.page.shows("shown once")
        key = await c.page.text(".code pre")
        headers = {"authorization": f"Bearer {key}"}
        async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
            while (await http.get(f"{c.g.url}/v1/models")).status != 200:
                await asyncio.sleep(0.05)
        assert "beta" not in await c.page.text("body")


async def test_hostile_texts_of_clients_and_servers_stay_texts(console: OpenConsole) -> None:
    texts = [HOSTILE, *hostile_texts(15)]
    async with upstream(HOSTILE) as up, console(configuration(up.url, auth={"demo_key": True})) as c:
        await c.open("/start")
        await c.page.shows("The demo key")
        key = await c.page.text(".code pre")
        url = f"{c.g.url}/v1/chat/completions"
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
            for number, text in enumerate(texts):
                body = {"model": "chat", "messages": [{"role": "user", "content": text}], "user": text}
                for sent in (body, {**body, "model": text}):
                    answer = await http.post(url, json=sent, headers={"x-request-id": f"{number}{text}"[:128]})
                    assert answer.status in (200, 404)
        await c.page.click("Send", "button")
        await c.page.shows(HOSTILE)
        await check_inert(c.page)
        await c.until_stored(2 * len(texts))
        await c.open("/requests")
        await c.page.until("document.querySelectorAll('tbody tr').length > 5")
        await check_inert(c.page)
        for text in texts[:4]:
            await c.open(f"/requests?model={quote(text, safe='')}&find=id:{quote(text[:200], safe='')}")
            await c.page.shows("No stored request matches this search.")
            await check_inert(c.page)
            await c.open(f"/requests/{quote(text, safe='')}")
            await c.page.shows("Try again")
            await check_inert(c.page)
            await c.open("/requests")
        await c.page.until("document.querySelectorAll('tbody tr').length > 5")
        await c.page.evaluate("document.querySelector('tbody a').click()")
        await c.page.shows("Timeline")
        await c.page.click("Record", "summary")
        await check_inert(c.page)


async def test_requests_are_searched_page_by_page(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        key, other = await c.issue(), await c.issue("beta")
        for number in range(60):
            await c.chat(other if number % 10 == 0 else key, model="none" if number % 7 == 0 else "chat")
        await c.open("/requests")
        operator = await c.issue(role="operator")
        await c.until_stored(60, operator)
        await c.sign_in(operator)
        await c.page.until("document.querySelectorAll('tbody tr').length === 50")
        await check_accessibility(c.page)
        await c.page.click("More", "button")
        await c.page.until("document.querySelectorAll('tbody tr').length === 60")
        await c.page.choose("Tenant", "beta")
        await c.page.until("document.querySelectorAll('tbody tr').length === 6")
        await c.page.choose("Outcome", "404")
        await c.page.until("document.querySelectorAll('tbody tr').length === 1")
        await c.open(f"/requests?find=id:{'x' * 300}")
        await c.page.shows("must have at most")
        await c.open("/requests")
        await c.sign_out()
        await c.page.shows("Sign in to Headrace")
        await c.sign_in(await c.issue("beta", role="tenant-admin"))
        await c.page.until("document.querySelectorAll('tbody tr').length === 6")
