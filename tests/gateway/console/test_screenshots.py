"""The pictures of docs/console.md: `make screenshots` renews them, any other run only takes them."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.gateway.console.conftest import OpenConsole
from tests.gateway.console.test_start import configuration, until_stored
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
FOLDER = Path("docs/console")
SIZE = (1000, 700)
LIMITS = {"requests": "600/min", "tokens": "100k/min", "spend": "50 usd/month"}


async def test_the_pictures_of_the_documentation(console: OpenConsole, tmp_path: Path) -> None:
    folder = FOLDER if os.environ.get("HEADRACE_RECORD_SCREENSHOTS") else tmp_path
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    text = "A river is a natural stream of water that flows towards a sea, a lake or another river."
    tenants = [{"name": "acme", "models": ["*"], "limits": LIMITS}]
    async with upstream(text) as up, console(configuration(up.url, auth={"demo_key": True}, tenants=tenants)) as c:
        page = c.page
        await page.resize(*SIZE)
        await page.colours("light")
        await c.open("/start")
        for number in range(3):
            await page.click("Send", "button")
            await page.shows("attempt")
            await until_stored(c, number + 1)
        await page.evaluate("scrollTo(0, 0)")
        await page.resize(SIZE[0], 1000)
        await page.screenshot(folder / "start.png")
        await page.resize(*SIZE)
        await c.open("/live")
        await page.until("!!document.querySelector('.u-wrap')")
        await page.screenshot(folder / "live.png")
        await c.open("/requests")
        await page.until("document.querySelectorAll('tbody tr').length === 3")
        await page.evaluate("document.querySelector('tbody a').click()")
        await page.shows("Pools in order")
        await page.screenshot(folder / "request.png")
        await c.open("/tenants/acme")
        await page.shows("usd in 30 days")
        await page.screenshot(folder / "tenant.png")
    pictures = await asyncio.to_thread(lambda: {path.name for path in folder.glob("*.png")})
    document = await asyncio.to_thread(Path("docs/console.md").read_text)
    assert set(re.findall(r"\(console/([\w-]+\.png)\)", document)) <= pictures
