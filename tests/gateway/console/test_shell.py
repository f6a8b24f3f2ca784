"""The shell of the console in a real browser: sign-in, navigation, colours, keyboard, narrow screens."""

import pytest

from tests.gateway.console.conftest import OpenConsole, settings
from tests.support.browsing.axe import check_accessibility

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


async def test_an_operator_signs_in_reads_the_audit_log_and_signs_out(console: OpenConsole) -> None:
    async with console() as c:
        await c.open("/audit")
        await c.page.shows("Sign in to Headrace")
        await check_accessibility(c.page)
        await c.page.fill("Key of an operator", "hr-wrong")
        await c.page.click("Sign in", "button")
        await c.page.shows("the API key or token is not valid")
        await c.sign_in(await c.issue(role="operator"))
        await c.page.shows("gateway.start")
        await c.page.shows("console.sign_in")
        for scheme in ("light", "dark"):
            await c.page.choose("Colours", scheme.capitalize())
            await check_accessibility(c.page)
        await c.page.click("Sign out")
        await c.page.shows("Sign in to Headrace")
        await c.open("/audit")
        await c.page.shows("Sign in to Headrace")
        assert {entry.split()[-1] for entry in c.page.refused} == {f"{c.g.admin}/console/api/session"}


async def test_without_authentication_the_console_opens_at_once(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/audit")
        await c.page.shows("this machine")
        await c.page.shows("gateway.start")
        assert "Sign out" not in await c.page.text("header")


async def test_the_keyboard_reaches_everything(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/audit")
        await c.page.shows("gateway.start")
        focus = "((e) => `${e.closest('header, main')?.tagName} ${e.textContent.trim()}`)(document.activeElement)"
        await c.page.evaluate("document.activeElement.blur()")
        reached = []
        for _ in range(30):
            await c.page.press("Tab")
            reached.append(await c.page.evaluate(focus))
        titles = await c.page.evaluate("[...document.querySelectorAll('nav a')].map((a) => a.textContent)")
        assert {f"HEADER {title}" for title in titles} <= set(reached)


async def test_nothing_is_wider_than_a_narrow_screen(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.page.resize(360)
        await c.open("/audit")
        await c.page.shows("gateway.start")
        await c.page.until("document.documentElement.scrollWidth <= 360")
        await check_accessibility(c.page)
