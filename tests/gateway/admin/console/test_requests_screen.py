"""The screen of requests: a search that has an address, its neighbours, its tail and its file."""

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
ROWS = "document.querySelectorAll('tbody tr').length"


async def test_a_search_has_an_address_and_a_request_has_neighbours(console: OpenConsole) -> None:
    models = [{"name": name, "routes": [{"to": "main"}]} for name in ("chat", "other")]
    async with upstream() as up, console(settings(up.url, auth={}, requests={"flush": "100ms"}, models=models)) as c:
        for model in ("chat", "other", "chat", "other", "chat"):
            assert (await c.chat(model=model))[0] == 200
        await c.until_stored(5)
        await c.open("/requests")
        await c.page.until(f"{ROWS} === 5")
        await c.page.shows("until now")
        await c.page.choose("Model", "chat")
        await c.page.until(f"{ROWS} === 3")
        await check_accessibility(c.page)
        times = await c.page.evaluate("[...document.querySelectorAll('tbody a')].map((a) => a.hash)")
        assert all(hash.endswith("?model=chat") for hash in times)

        await c.page.evaluate("document.querySelectorAll('tbody a')[1].click()")
        await at(c, times[1])
        await c.page.click("Newer")
        await at(c, times[0])
        await c.page.click("Newer")
        await c.page.shows("None is newer")
        for place in (1, 2):
            await c.page.click("Older")
            await at(c, times[place])
        await c.page.click("Older")
        await c.page.shows("None is older")
        await check_accessibility(c.page)
        await c.page.evaluate("history.go(-4)")
        await c.page.until(f"location.hash === '#/requests?model=chat' && {ROWS} === 3")
        assert await c.page.evaluate("document.querySelector('select[name=model]').value") == "chat"

        await c.page.click("Follow")
        assert (await c.chat())[0] == 200
        await c.page.until(f"{ROWS} === 4")
        await c.page.choose("Outcome", "any failure")
        await c.page.shows("No stored request matches this search.")
        await c.open("/requests?find=trace:none&unknown=1")
        await c.page.shows("No stored request matches this search.")
        await c.page.click("Clear")
        await c.page.until(f"location.hash === '#/requests' && {ROWS} === 6")


async def test_the_requests_of_an_end_user(console: OpenConsole) -> None:
    made = settings(requests={"flush": "100ms"}, auth={"admin": {"required": False}})
    async with upstream() as up, console({**made, "pools": [{"name": "main", "endpoints": [up.url]}]}) as c:
        await c.open("/requests?user=zoe%40example.org")
        await c.page.shows("counts and stores end users")
    made["usage"] = {"users": 100, "flush": "100ms"}
    async with upstream() as up, console({**made, "pools": [{"name": "main", "endpoints": [up.url]}]}) as c:
        key = await c.issue()
        for user in ("zoe@example.org", "<b>ann</b>", "zoe@example.org"):
            assert (await c.chat(key, user=user))[0] == 200
        await c.until_stored(3)
        await c.open("/requests")
        await c.page.until(f"{ROWS} === 3")
        await c.page.fill("End user", " zoe@example.org ")
        await c.page.click("Search", "button")
        await c.page.until(f"location.hash === '#/requests?user=zoe%40example.org' && {ROWS} === 2")
        await c.page.shows("2 requests")
        await check_accessibility(c.page)
        await c.page.fill("End user", "<b>ann</b>")
        await c.page.click("Search", "button")
        await c.page.until(f"{ROWS} === 1")
        await c.page.evaluate("document.querySelector('tbody a').click()")
        await c.page.shows("<b>ann</b>")
        await c.page.click("<b>ann</b>", "a")
        await c.page.until(f"location.hash.startsWith('#/requests?user=') && {ROWS} === 1")


async def at(c: ConsoleRig, hash: str) -> None:
    await c.page.until("(hash) => location.hash === hash && document.body.innerText.includes('Pools in order')", hash)


async def test_a_search_is_saved_as_a_file_without_formulas(console: OpenConsole, tmp_path: Path) -> None:
    async with upstream() as up, console(settings(up.url, auth={}, requests={"flush": "100ms"})) as c:
        for _ in range(3):
            assert (await c.chat())[0] == 200
        await c.until_stored(3)
        await c.page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
        await c.open("/requests")
        await c.page.until(f"{ROWS} === 3")
        await c.page.click("Save as JSON lines")
        lines = [json.loads(line) for line in (await saved(tmp_path / "saved/requests.jsonl")).splitlines()]
        await c.page.click("Save as CSV")
        rows = list(csv.DictReader(io.StringIO(await saved(tmp_path / "saved/requests.csv"))))
        assert [row["id"] for row in rows] == [line["id"] for line in lines]
        assert {row["model"] for row in rows} == {"chat"}
        cells = {"=1+1": "'=1+1", "-5": "-5", "a,b": '"a,b"', 'x"y': '"x""y"', "@x\n": '"\'@x\n"', "-1-1": "'-1-1"}
        for text, cell in cells.items():
            module = "import('./static/screens/requests/export.js')"
            assert await c.page.evaluate(f"async (text) => (await {module}).cell(text)", text) == cell


async def saved(path: Path) -> str:
    async with asyncio.timeout(300):
        while not await asyncio.to_thread(path.exists):
            await asyncio.sleep(0.05)
    return await asyncio.to_thread(path.read_text)


async def test_recorded_content_is_shown_if_the_tenant_has_opted_in(console: OpenConsole, tmp_path: Path) -> None:
    (tmp_path / "record.key").write_text("the key of these records")
    record = {"to": str(tmp_path / "records"), "key": f"file:{tmp_path}/record.key", "share": "100%", "answers": True}
    tenants = [{"name": name, "models": ["*"], "show_content": "operators"} for name in ("acme", "beta")]
    made: dict[str, Any] = {"requests": {"flush": "100ms"}, "record": record, "tenants": tenants}
    async with upstream() as up, console(settings(up.url, auth={}, **made)) as c:
        assert (await c.chat())[0] == 200
        await c.until_stored(1)
        await c.open("/requests")
        await c.page.until(f"{ROWS} === 1")
        await c.page.evaluate("document.querySelector('tbody a').click()")
        await c.page.shows("Prompt and answer")
        assert "messages" not in await c.page.text("main")
        # A record is written within a second of its request: until then the button has no effect.
        button = (
            "[...document.querySelectorAll('button:enabled')].find((b) => b.innerText === 'Show the recorded content')"
        )
        await c.page.until(f"({button}?.click(), document.querySelector('pre[aria-label=answer]') !== null)")
        assert "messages" in await c.page.text("pre[aria-label=prompt]")
        await check_accessibility(c.page)
        await c.open("/audit")
        await c.page.shows("read the recorded content of the request")
