"""The shell of the console in a real browser: sign-in, sign-out and colours."""

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.browsing.page import Page

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
OFFLINE = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


async def test_an_operator_signs_in_reads_the_audit_log_and_signs_out(console: OpenConsole) -> None:
    async with console() as c:
        await c.open("/audit")
        await c.page.shows("Sign in to Headrace")
        await check_accessibility(c.page)
        await c.page.fill("Key of an operator", "hr-wrong")
        await c.page.click("Sign in", "button")
        await c.page.shows("the API key or token is not valid")
        await c.sign_in(await c.issue(role="operator"))
        await c.page.shows("started with the file")
        await c.page.shows("signed in to the console")
        for scheme in ("light", "dark"):
            await c.page.choose("Colours", scheme.capitalize())
            await check_accessibility(c.page)
        await c.page.click("operator:")
        await check_accessibility(c.page)
        await c.page.click("Sign out")
        await c.page.shows("Sign in to Headrace")
        assert "session is over" not in await c.page.text()
        await c.open("/audit")
        await c.page.shows("Sign in to Headrace")
        assert {entry.split()[-1] for entry in c.page.refused} == {f"{c.g.admin}/console/api/session"}


async def test_a_page_without_its_session_shows_why_and_goes_on_after_the_sign_in(console: OpenConsole) -> None:
    async with console() as c:
        key = await c.issue(role="operator")
        await c.open("/audit")
        await c.sign_in(key)
        await c.page.shows("signed in to the console")
        await c.page.evaluate("sessionStorage.setItem('mark', 'here')")
        async with aiohttp.ClientSession(cookies=await cookies(c.page)) as elsewhere:
            url = f"{c.g.admin}/console/api/sessions"
            async with elsewhere.delete(url, headers={"sec-fetch-site": "same-origin"}) as response:
                assert response.status == 200
        await c.page.click("Tenants", "nav a")
        await c.page.shows("Your session is over. You signed out.")
        await check_accessibility(c.page)
        await c.sign_in(key)
        await c.page.until("document.querySelector('h1').textContent === 'Tenants'")
        await c.page.shows("acme")


async def cookies(page: Page) -> dict[str, str]:
    return {each["name"]: each["value"] for each in (await page.send("Network.getCookies"))["cookies"]}


async def test_a_page_without_its_gateway_shows_that_and_recovers(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/live")
        await c.page.shows("serving")
        assert await c.page.evaluate("document.activeElement.tagName") == "BODY", "no focus ring at the load"
        await c.page.send("Network.emulateNetworkConditions", **OFFLINE, offline=True)
        await c.page.click("Pause")
        await c.page.click("Pause")  # opens another stream: the open one is not cut
        await c.page.shows("The gateway does not respond.")
        await c.page.until("!document.querySelector('main').innerText.includes('serving')")
        await c.page.click("Tenants", "nav a")
        await c.page.shows("Tenants is shown when the gateway responds again.")
        await check_accessibility(c.page)
        await c.page.send("Network.emulateNetworkConditions", **OFFLINE, offline=False)
        await c.page.shows("acme")
        await c.page.until("!document.querySelector('.gone')")


async def test_a_key_opens_the_list_of_places(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/audit")
        await c.page.shows("started with the file")
        key = {"key": "k", "code": "KeyK", "windowsVirtualKeyCode": 75, "modifiers": 2}
        await c.page.send("Input.dispatchKeyEvent", type="keyDown", **key)
        await c.page.shows("Tenant beta")
        await check_accessibility(c.page)
        await c.page.send("Input.insertText", text="tenant")
        await c.page.press("ArrowDown", 40)
        await c.page.press("ArrowDown", 40)
        await c.page.press("Enter")
        await c.page.until("location.hash === '#/tenants/beta'")
        await c.page.shows("Requests under way")


async def test_without_authentication_the_console_opens_at_once(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/audit")
        await c.page.shows("this machine")
        await c.page.shows("started with the file")
        assert "Sign out" not in await c.page.text("header")
