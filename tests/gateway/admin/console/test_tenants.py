"""The screen of tenants in a real browser: limits, usage, and the life of a key."""

import sqlite3
from contextlib import closing
from typing import Any

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.gateway.admin.console.hostile import HOSTILE, check_inert
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream
from tests.support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


def configuration(url: str) -> dict[str, Any]:
    price = {"prompt": "3 usd/1M", "completion": "15 usd/1M"}
    limits = {"requests": "600/min", "spend": "50 usd/month"}
    return settings(
        url,
        usage={},
        models=[{"name": "chat", "routes": [{"to": "main"}], "price": price}],
        tenants=[{"name": "acme", "models": ["*"], "limits": limits}, {"name": "beta", "models": ["chat"]}],
    )


async def until_answered(c: ConsoleRig, key: str, status: int) -> None:
    """Send chats until one has the status: a change of keys takes a moment."""

    async def answered() -> bool:
        return (await c.chat(key))[0] == status

    await until(answered)


async def test_a_tenant_s_admin_issues_rotates_and_revokes_a_key(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        await c.open("/tenants")
        await c.sign_in(await c.issue(role="tenant-admin"))
        await c.page.shows("50 usd/month")
        await c.page.shows("0 B of 20 GiB")
        await c.page.click("Issue a key")
        await c.page.fill("Label", HOSTILE)
        await c.page.fill("Expires", "90d")
        await check_accessibility(c.page)
        await c.page.click("Issue", "dialog button")
        await c.page.shows("it is shown once")
        first = await c.page.text("dialog pre")
        await c.page.click("Done")
        await c.page.shows(HOSTILE)
        await check_inert(c.page)
        await c.page.until(f"!document.documentElement.innerHTML.includes({first!r})")
        await check_accessibility(c.page)
        await until_answered(c, first, 200)
        key_id = first.split("-")[1]
        await c.page.click(f"Rotate {key_id}")
        await c.page.fill("Overlap", "soon")
        await c.page.click("Rotate", "dialog button")
        await c.page.shows("expected a duration")
        await c.page.fill("Overlap", "1h")
        await c.page.click("Rotate", "dialog button")
        await c.page.shows("it is shown once")
        second = await c.page.text("dialog pre")
        await c.page.click("Done")
        successor = second.split("-")[1]
        await c.page.click(f"Block {successor}")
        await check_accessibility(c.page)
        await c.page.click("Block", "dialog button")
        await c.page.until(f"[...document.querySelectorAll('button')].some((b) => b.ariaLabel === 'Unblock {key_id}')")
        for key in (first, second):
            await until_answered(c, key, 401)
        await c.page.click(f"Unblock {key_id}")
        await c.page.click("Unblock", "dialog button")
        await c.page.until(f"[...document.querySelectorAll('button')].some((b) => b.ariaLabel === 'Block {key_id}')")
        for key in (first, second):
            await until_answered(c, key, 200)
        await c.page.click(f"Revoke {key_id}")
        await c.page.click("Revoke", "dialog button")
        await c.page.until(f"![...document.querySelectorAll('button')].some((b) => b.ariaLabel === 'Revoke {key_id}')")
        await until_answered(c, first, 401)
        await until_answered(c, second, 200)
        await c.page.choose("Period", "7 days")
        await c.page.until("document.body.innerText.match(/[.0-9]+ usd in 7 days/)?.[0].startsWith('0 ') === false")
        assert "beta" not in await c.page.text("body")


async def test_stored_bytes_that_cannot_be_read_are_read_again(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        await c.open("/tenants")
        await c.sign_in(await c.issue(role="tenant-admin"))
        await c.page.shows("0 B of 20 GiB")
        with closing(sqlite3.connect(c.g.config.parent / "state.db", isolation_level=None)) as database:
            database.execute("ALTER TABLE stored_bytes RENAME TO moved")
            await c.open("/models")
            await c.open("/tenants")
            await c.page.shows("cannot be read now")
            await c.page.shows("50 usd/month")
            database.execute("ALTER TABLE moved RENAME TO stored_bytes")
        await c.page.shows("0 B of 20 GiB")


async def test_a_tenant_s_admin_manages_teams_within_its_budget(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        await c.open("/tenants")
        await c.sign_in(await c.issue(role="tenant-admin"))
        await c.page.click("Add a team")
        await c.page.fill("Name", "search")
        await c.page.fill("Spend", "51 usd/month")
        await c.page.click("Add", "dialog button")
        await c.page.shows("51 usd/month is beyond the 50 usd/month of the tenant acme")
        await c.page.fill("Spend", "20 usd/month")
        await c.page.fill("Requests", "1/h")
        await check_accessibility(c.page)
        await c.page.click("Add", "dialog button")
        await c.page.shows("requests 1/h, spend 20 usd/month")
        await c.page.click("Issue a key")
        await c.page.choose("Team", "search")
        await c.page.click("Issue", "dialog button")
        await c.page.shows("it is shown once")
        key = await c.page.text("dialog pre")
        await c.page.click("Done")
        await until_answered(c, key, 200)
        await until_answered(c, key, 429)
        await c.page.click("Change search")
        await c.page.fill("Requests", "500/min")
        await c.page.click("Change", "dialog button")
        await c.page.shows("requests 500/min")
        await until_answered(c, key, 200)
        await c.page.click("Remove search")
        await c.page.click("Remove", "dialog button")
        await c.page.shows("1 valid keys are in the team search")
        await c.page.click("Cancel", "dialog button")
        await c.page.click(f"Move {key.split('-')[1]}")
        await c.page.choose("Team", "none")
        await c.page.click("Move", "dialog button")
        await c.page.until("!document.querySelector('dialog')")
        await c.page.choose("By", "team")
        await c.page.until("[...document.querySelectorAll('th[scope=row]')].some((th) => th.innerText === 'search')")
        await check_accessibility(c.page)
        await c.page.click("Remove search")
        await c.page.click("Remove", "dialog button")
        await c.page.shows("No team.")


async def test_an_operator_sees_all_tenants_and_a_tenant_s_admin_its_own(console: OpenConsole) -> None:
    async with upstream() as up, console(configuration(up.url)) as c:
        await c.open("/tenants/beta")
        await c.sign_in(await c.issue(role="tenant-admin"))
        await c.page.shows("50 usd/month")
        assert await c.page.text("h2") == "acme"
        await c.sign_out()
        await c.page.shows("Sign in to Headrace")
        await c.sign_in(await c.issue(role="operator"))
        await c.page.click("All tenants")
        await c.page.shows("beta")
        await check_accessibility(c.page)
        await c.page.fill("Name contains", "ac")
        await c.page.until("document.querySelectorAll('tbody tr').length === 1")
        await c.page.click("acme")
        await c.page.shows("600/min")


async def test_many_keys_are_read_page_by_page(console: OpenConsole) -> None:
    rows = "document.querySelectorAll('[aria-label=Keys] tbody tr').length"
    async with upstream() as up, console(configuration(up.url)) as c:
        operator = await c.issue(role="operator")
        headers = {"authorization": f"Bearer {operator}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            for number in range(60):
                body = {"label": f"application {number}"}
                async with http.post(f"{c.g.admin}/admin/tenants/acme/keys", json=body) as response:
                    assert response.status == 201
        await c.open("/tenants/acme")
        await c.sign_in(operator)
        await c.page.until(f"{rows} === 50")
        await c.page.shows("application 59")
        await c.page.click("More")
        await c.page.until(f"{rows} === 61")
        await c.page.shows("application 0")
        await check_accessibility(c.page)
