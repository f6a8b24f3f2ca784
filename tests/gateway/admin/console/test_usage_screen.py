"""The usage of a company in a real browser: sorted, followed into its parts, and exported."""

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
NAMES = "[...document.querySelectorAll('tbody th a')].map((each) => each.innerText).join()"


async def used(c: ConsoleRig) -> None:
    """Two requests of `acme` and one of `beta`, of which one goes to another model."""
    acme, beta = await c.issue(), await c.issue(tenant="beta")
    for key, model in ((acme, "chat"), (acme, "small"), (beta, "chat")):
        assert (await c.chat(key, model=model))[0] == 200


async def test_an_operator_follows_the_money_into_its_parts(console: OpenConsole) -> None:
    async with upstream() as up:
        models = [
            {"name": name, "routes": [{"to": "main"}], "price": {"request": price}}
            for name, price in (("chat", "1 usd"), ("small", "0.5 usd"))
        ]
        async with console(settings(up.url, usage={"flush": "100ms"}, models=models)) as c:
            operator = await c.issue(role="operator")
            await used(c)
            await c.open("/usage")
            await c.sign_in(operator)
            await c.page.until(f"{NAMES} === 'acme,beta'")  # the largest amount first
            await c.page.shows("2.5")
            await check_accessibility(c.page)
            await c.page.click("Tenant", "button")
            await c.page.click("Tenant", "button")
            await c.page.until(f"{NAMES} === 'beta,acme'")
            assert await c.page.evaluate("document.querySelector('th[aria-sort]').ariaSort") == "descending"
            await c.page.click("acme", "a")
            await c.page.until(f"{NAMES} === 'chat,small'")
            await check_accessibility(c.page)
            await c.page.click("small", "a")
            await c.page.shows("0.5 usd")
            url = await c.page.evaluate("[...document.querySelectorAll('a')].find((a) => a.innerText === 'CSV').href")
            headers = {"authorization": f"Bearer {operator}"}
            async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
                head, row = (await response.text()).splitlines()
            assert head.startswith("tenant,key,currency,amount,picos,requests,")
            assert row.startswith("acme,")
            assert ",usd,0.5,500000000000,1," in row
            await c.page.evaluate("history.back()")
            await c.page.until(f"{NAMES} === 'chat,small'")
            await c.page.click("All of tenant", "button")
            await c.page.until(f"{NAMES} === 'acme,beta'")


async def test_a_tenant_admin_sees_its_own_usage_alone(console: OpenConsole) -> None:
    async with upstream() as up:
        models = [{"name": name, "routes": [{"to": "main"}]} for name in ("chat", "small")]
        async with console(settings(up.url, usage={"flush": "100ms"}, models=models)) as c:
            own = await c.issue(role="tenant-admin")
            await used(c)
            await c.open("/usage")
            await c.sign_in(own)
            await c.page.until(f"{NAMES} === 'chat,small'")
            assert "beta" not in await c.page.text()
