"""Hostile texts of operators' files, of acts and of addresses on the screens of live, audit, pipelines and tenants."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.gateway.admin.console.hostile import HOSTILE, check_inert, hostile_texts
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
WORD = "<svg/onload=window.hit=1>"
SCREENS = ("start", "live", "requests", "tenants", "models", "usage", "policy", "playground", "rollouts", "pipelines",
           "guards", "batches", "audit")  # fmt: skip


def configuration(url: str, folder: Path) -> dict[str, Any]:
    """Every text of a file and of its catalogue that may have any signs."""
    facts = {"deprecated": WORD, "price": {"prompt": WORD, "completion": HOSTILE}, "can": [WORD]}
    providers = {WORD: {"hosts": ["127.0.0.1"], "models": {"chat": facts}}}
    (folder / "facts.json").write_text(json.dumps({"date": WORD, "sources": [], "providers": providers}))
    branches = [{"if": f"request.text == '{WORD}'", "model": "chat"}]
    steps = [{"name": "last", "switch": [*branches, {"else": True, "model": "chat"}]}]
    return settings(
        url,
        auth={},
        catalogue={"file": "facts.json"},
        pools=[{"name": "main", "endpoints": [f"{url}/{WORD}"]}],
        models=[{"name": "chat", "routes": [{"to": "main"}]}, {"name": "piped", "pipeline": {"steps": steps}}],
    )


async def test_hostile_texts_stay_texts_on_every_screen(console: OpenConsole, tmp_path: Path) -> None:
    texts = [HOSTILE, *hostile_texts(12)]
    async with upstream(HOSTILE) as up, console(configuration(up.url, tmp_path)) as c:
        async with aiohttp.ClientSession() as http:
            for text in texts:
                await http.delete(f"{c.g.admin}/admin/tenants/{quote(text, safe='')}/keys/{quote(text, safe='')}")
        await c.open("/live")
        await c.page.shows(WORD)
        await check_inert(c.page)
        await c.open("/audit")
        await c.page.shows(HOSTILE[:20])
        await check_inert(c.page)
        await check_accessibility(c.page)
        await c.open("/pipelines")
        await c.page.shows(f"if request.text == '{WORD}'")
        await check_inert(c.page)
        for place in ("/models", "/models/chat"):
            await c.open(place)
            await c.page.shows(WORD)
            await check_inert(c.page)
        await c.open("/tenants")
        await c.page.fill("Name contains", HOSTILE)
        await c.page.until("document.querySelectorAll('tbody tr').length === 0")
        await check_inert(c.page)
        for screen in SCREENS:
            for text in texts[:3]:
                await c.open(f"/{screen}/{quote(text, safe='')}/{quote(text, safe='')}")
                await c.page.until("!document.querySelector('main').innerText.includes('Loading')")
                await check_inert(c.page)
