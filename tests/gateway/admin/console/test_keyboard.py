"""Each screen does its job with the keyboard alone, on a screen of 360 pixels."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Response
from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.batches import chat_line, client, submitted, until_ended
from tests.support.browsing.axe import check_accessibility
from tests.support.browsing.keyboard import Keyboard
from tests.support.upstreams import stream, upstream, whole

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
NARROW = 360
ROLLOUT = {
    "name": "to-new", "from": {"pool": "main"}, "to": {"pool": "new"}, "warmup": "0s",
    "steps": [{"weight": "20%", "for": "1h"}],
}  # fmt: skip


def configuration(url: str, folder: Path) -> dict[str, Any]:
    """A configuration with something on each screen."""
    other = url.replace("127.0.0.1", "localhost")
    price = {"prompt": "3 usd/1M", "completion": "15 usd/1M"}
    return settings(
        url,
        requests={"flush": "100ms"},
        usage={"flush": "100ms"},
        batches={"storage": f"file:{folder}/files", "commit": "100ms"},
        pools=[{"name": "main", "endpoints": [url, other]}, {"name": "new", "endpoints": [url]}],
        models=[
            {"name": "chat", "routes": [{"to": "main"}], "price": price},
            {"name": "rolled", "routes": [{"rollout": ROLLOUT}]},
            {"name": "piped", "pipeline": {"steps": [{"name": "first", "model": "chat"}]}},
        ],
    )


async def open_screen(c: ConsoleRig, keys: Keyboard, title: str) -> None:
    """Open a screen by its link, whose heading then has the focus."""
    await keys.use("Menu")
    await keys.use(title, "nav a")
    await opened(c, title)


async def opened(c: ConsoleRig, title: str) -> None:
    """Wait until the heading of a screen has the focus."""
    await c.page.until("(title) => document.activeElement.tagName === 'H1' && document.title.startsWith(title)", title)


async def fits(c: ConsoleRig) -> None:
    await c.page.until(f"document.documentElement.scrollWidth <= {NARROW}")


async def test_each_screen_does_its_job(console: OpenConsole, tmp_path: Path) -> None:
    held = asyncio.Event()

    async def answer(body: dict[str, Any]) -> Response:
        if body["messages"][-1]["content"] == "wait":
            await held.wait()
        return stream("A river.") if body.get("stream") else whole("A river.")

    async with upstream() as up, console(configuration(up.url, tmp_path)) as c:
        up.behaviour = answer
        keys = Keyboard(c.page)
        operator, key = await c.issue(role="operator"), await c.issue()
        await c.page.resize(NARROW)
        await c.open("/start")
        await keys.write("Key of an operator", operator)
        await c.page.press("Enter")
        for job in (start, live, requests, tenants, models, policy, playground, rollouts, pipelines):
            await job(c, keys)
            await fits(c)
        async with client(c.g, key) as sdk:
            batch = await submitted(sdk, [chat_line("a", "wait")])
            await batches(c, keys)
            held.set()
            assert (await until_ended(sdk, batch)).status == "cancelled"
        await fits(c)
        await audit(c, keys, operator)
        await fits(c)
        await check_accessibility(c.page)


async def start(c: ConsoleRig, keys: Keyboard) -> None:
    await keys.use("Issue a key for a day")
    await c.page.shows("shown once")
    await keys.use("Send")
    await c.page.shows("1 attempt")
    await keys.use("Why it went there")
    await opened(c, "Requests")
    await c.page.shows("Pools in order")


async def live(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Live")
    await keys.use("Drain main/")
    await c.page.until("document.querySelector('main').innerText.includes('drained')")
    await keys.use("Undrain main/")
    await c.page.until("!document.querySelector('main').innerText.includes('drained')")
    await keys.use("Pause")


async def requests(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Requests")
    await c.page.until("document.querySelectorAll('tbody tr').length > 0")
    await keys.reach("Model", "select")
    await c.page.press("ArrowDown", 40)
    await c.page.until("location.hash.includes('model=chat')")
    await c.page.until("document.querySelectorAll('tbody tr').length > 0")
    await keys.use("", "tbody a")
    await c.page.shows("Pools in order")


async def tenants(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Tenants")
    await keys.use("acme", "tbody a")
    await keys.use("Issue a key")
    await keys.write("Label", "by keyboard")
    await c.page.press("Enter")
    await c.page.shows("it is shown once")
    await keys.use("Done")
    await c.page.shows("by keyboard")


async def models(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Models")
    await keys.write("Model, pool or provider", "chat")
    await c.page.until("document.querySelectorAll('tbody tr').length === 1")
    await keys.use("chat", "tbody a")
    await c.page.shows("In the file")


async def policy(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Policy")
    await keys.write("Draft of", "\n")
    await keys.use("Check")
    await c.page.shows("The draft is valid.")


async def playground(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Playground")
    await keys.write("Prompt", "hi")
    await keys.use("Send")
    await c.page.shows("A river.")


async def rollouts(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Rollouts")
    await keys.use("Pause to-new")
    await c.page.until("!!document.querySelector('dialog[open]')")
    await c.page.press("Escape", 27)
    await c.page.until("!document.querySelector('dialog')")
    await keys.use("Pause to-new")
    await keys.use("Confirm")
    await c.page.until("document.querySelector('article .badge').textContent === 'held'")


async def pipelines(c: ConsoleRig, keys: Keyboard) -> None:
    sent, id = await c.chat(await c.issue(), model="piped")
    assert sent == 200
    await open_screen(c, keys, "Pipelines")
    await keys.write("Id of a request", id)
    await c.page.press("Enter")
    await c.page.until("document.querySelectorAll('.graph .passed').length === 1")


async def batches(c: ConsoleRig, keys: Keyboard) -> None:
    await open_screen(c, keys, "Batches")
    await keys.use("", "tbody a")
    await keys.use("Cancel the batch")
    await keys.use("Confirm")
    await c.page.until("['cancelling', 'cancelled'].includes(document.querySelector('h2 .badge').textContent)")


async def audit(c: ConsoleRig, keys: Keyboard, operator: str) -> None:
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {operator}"}) as http:
        for _ in range(100):
            await http.delete(f"{c.g.admin}/admin/tenants/acme/keys/none")
    await open_screen(c, keys, "Audit")
    await keys.use("More")
    await c.page.until("document.querySelectorAll('tbody tr').length > 100")
