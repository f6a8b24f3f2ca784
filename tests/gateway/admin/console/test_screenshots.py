"""Every screen in dark and light, wide and narrow. `make screenshots` renews the pictures of docs/console.md."""

import asyncio
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.batches import chat_line, client, submitted, until_ended
from tests.support.browsing.axe import check_accessibility
from tests.support.browsing.page import Page
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
FOLDER = Path("docs/console")
WIDE, NARROW = (1000, 700), (360, 700)
COLOURS = 64
"""Colours of a picture: a screen has few, and its file a third of the bytes."""
MOST_BYTES = 600_000
LIMITS = {"requests": "600/min", "tokens": "100k/min", "spend": "50 usd/month"}
TEXT = "A river is a natural stream of water that flows towards a sea, a lake or another river."
ROLLOUT = {
    "name": "to-new", "from": {"pool": "main"}, "to": {"pool": "new"}, "warmup": "0s",
    "steps": [{"weight": "20%", "for": "1h"}, {"weight": "50%", "for": "1h"}], "back_if": [{"metric": "failures"}],
}  # fmt: skip
CASCADE = [{"model": "small", "accept_if": "finish == 'length'"}, {"model": "chat"}]
PIPELINE: dict[str, Any] = {
    "steps": [
        {"name": "draft", "model": "small"},
        {"name": "question", "in": {"draft": "draft.text"}, "template": "Better: {{ draft }}"},
        {"name": "answer", "in": {"prompt": "question.text"}, "cascade": CASCADE},
    ]
}

CAPPED = {"caps": {"max_tokens": 99_999}}


def configuration(url: str, folder: Path) -> dict[str, Any]:
    """A configuration with something on every screen."""
    price = {"prompt": "3 usd/1M", "completion": "15 usd/1M"}
    return settings(
        url,
        auth={"demo_key": True, "admin": {"edit": True}},
        requests={"flush": "100ms"},
        usage={"flush": "100ms"},
        batches={"storage": f"file:{folder}/files", "commit": "100ms"},
        pools=[
            *({"name": name, "endpoints": [url]} for name in ("main", "new")),
            {"name": "openai", "endpoints": ["https://api.openai.com"], "probe": None},
        ],
        tenants=[{"name": "acme", "models": ["*"], "limits": LIMITS}],
        models=[
            {"name": "chat", "routes": [{"to": "main"}], "price": price},
            {"name": "small", "routes": [{"to": "new"}], "price": {"request": "0.0001 usd"}},
            {"name": "rolled", "routes": [{"rollout": ROLLOUT}], "price": {"request": "0.0002 usd"}},
            {"name": "piped", "pipeline": PIPELINE},
            {"name": "gpt-4o", "routes": [{"to": "openai", "rewrite": CAPPED}], "price": {**price}},
            {"name": "gpt-5-mini", "aliases": ["mini"], "routes": [{"to": "openai"}], "price": {**price}},
        ],
    )


class Gallery:
    """Pictures of screens."""

    def __init__(self, page: Page, folder: Path) -> None:
        self._page = page
        self._folder = folder

    async def take(self, name: str, height: int = WIDE[1]) -> None:
        """Every view of the screen as it is, without a violation; the wide light one is that of the documentation."""
        page = self._page
        for scheme in ("dark", "light"):
            await page.colours(scheme)
            for (width, _), ending in ((NARROW, f"-{scheme}-narrow"), (WIDE, "" if scheme == "light" else "-dark")):
                await page.resize(width, height)
                await page.until(f"document.documentElement.scrollWidth <= {width}")
                await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                await self._store(f"{name}{ending}.png", full=bool(ending))
            await check_accessibility(page)

    async def _store(self, name: str, *, full: bool) -> None:
        folder = self._folder / "views" if full else self._folder
        await asyncio.to_thread(folder.mkdir, exist_ok=True)
        data = await self._page.picture(full=full)
        await asyncio.to_thread((folder / name).write_bytes, await asyncio.to_thread(small, data))


def small(data: bytes) -> bytes:
    """A PNG with few colours."""
    packed = io.BytesIO()
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


async def test_the_pictures_of_the_documentation(console: OpenConsole, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    await asyncio.to_thread(taken.mkdir)
    async with upstream(TEXT) as up, console(configuration(up.url, tmp_path)) as c:
        gallery = Gallery(c.page, taken)
        await c.page.resize(*WIDE)
        await c.page.colours("light")
        await first_request(c, gallery)
        await requests(c, gallery)
        await models(c, gallery)
        await batches(c, gallery)
        await policy(c, gallery, tmp_path)
        await live(c, gallery)
        await c.open("/audit")
        await c.page.shows("sent a request of the playground")
        await gallery.take("audit")
    await asyncio.to_thread(check_and_record, taken)


async def first_request(c: ConsoleRig, gallery: Gallery) -> None:
    await c.open("/start")
    for number in range(3):
        await c.page.click("Send", "button")
        await c.page.shows("attempt")
        await c.until_stored(number + 1)
    await c.page.evaluate("scrollTo(0, 0)")
    await gallery.take("start", 1000)


async def live(c: ConsoleRig, gallery: Gallery) -> None:
    """The live screen while chats are sent."""

    async def send() -> None:
        while True:
            await c.chat()
            await c.chat(model="small")

    sending = asyncio.create_task(send())
    try:
        await c.open("/live")
        await c.page.shows("usd an hour")
        await gallery.take("live", 900)
    finally:
        sending.cancel()


async def requests(c: ConsoleRig, gallery: Gallery) -> None:
    await c.open("/requests")
    await c.page.until("document.querySelectorAll('tbody tr').length === 3")
    await gallery.take("requests")
    await c.page.evaluate("document.querySelector('tbody a').click()")
    await c.page.shows("Pools in order")
    await gallery.take("request")
    await c.open("/tenants/acme")
    await c.page.shows("usd in 30 days")
    await gallery.take("tenant")
    await c.open("/usage")
    await c.page.shows("forecast")
    await gallery.take("usage")


async def models(c: ConsoleRig, gallery: Gallery) -> None:
    """The models of the file, the playground, rollouts, and the path of a request through a pipeline."""
    await c.open("/models")
    await c.page.shows("gpt-5-mini")
    await gallery.take("models")
    await c.open("/models/gpt-4o")
    await c.page.shows("Longest answer")
    await gallery.take("model")
    await c.open("/playground")
    await c.page.click("Add a model")
    await c.page.fill("Prompt", "What is a river?")
    await c.page.click("Send", "button")
    await c.page.until(
        "[...document.querySelectorAll('.facts')].filter((e) => e.innerText.includes('usd')).length === 2"
    )
    await c.page.evaluate("scrollTo(0, 0)")
    await gallery.take("playground", 900)
    await c.open("/rollouts")
    await c.page.until("!!document.querySelector('.chart canvas')")
    await gallery.take("rollouts")
    sent, id = await c.chat(content="What is a river?", model="piped")
    assert sent == 200
    await c.until_stored(6)
    await c.open(f"/requests/{id}")
    await c.page.until("document.body.innerText.includes('Steps of the pipeline')")
    await gallery.take("steps", 1100)
    await c.open(f"/pipelines/piped/{id}")
    await c.page.until("document.querySelectorAll('.graph .passed').length > 3")
    await gallery.take("pipelines", 1000)


async def batches(c: ConsoleRig, gallery: Gallery) -> None:
    async with client(c.g, await c.issue()) as sdk:
        lines = [chat_line(f"line-{number}") for number in range(40)]
        for part in (lines, lines[:7], [*lines[:3], {**lines[4], "method": "GET"}]):
            await until_ended(sdk, await submitted(sdk, part))
    await c.open("/batches")
    await c.page.until("document.querySelectorAll('tbody tr').length === 3")
    await gallery.take("batches")


async def policy(c: ConsoleRig, gallery: Gallery, folder: Path) -> None:
    """The file, without the folders of the test."""
    await c.open("/policy")
    await c.page.until("!!document.querySelector('#draft')")
    shown = await c.page.evaluate("document.querySelector('#draft').value")
    await c.page.fill("Draft of", shown.replace(str(folder), "/var/lib/headrace"))
    label = "document.querySelector('label[for=draft]')"
    await c.page.evaluate(f"{label}.textContent = 'Draft of /etc/headrace/headrace.yaml'")
    await c.page.evaluate("scrollTo(0, 0); document.querySelector('#draft').scrollTo(0, 0)")
    await gallery.take("policy")


def check_and_record(taken: Path) -> None:
    """The documentation has the pictures of this test alone, and small ones. `make screenshots` replaces them."""
    pictures = {path.name for path in taken.glob("*.png")}
    document = Path("docs/console.md").read_text()
    assert set(re.findall(r"\(console/([\w-]+\.png)\)", document)) == pictures
    assert sum(path.stat().st_size for path in taken.glob("*.png")) < MOST_BYTES
    if os.environ.get("HEADRACE_RECORD_SCREENSHOTS"):
        for old in FOLDER.glob("*.png"):
            old.unlink()
        for name in pictures:
            (FOLDER / name).write_bytes((taken / name).read_bytes())
