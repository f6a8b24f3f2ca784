"""The shell of the console in a real browser: sign-in, sign-out and colours."""

import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
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
