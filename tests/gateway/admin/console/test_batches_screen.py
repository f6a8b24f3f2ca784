"""The screen of batches in a real browser: the list, the progress of a batch, its problems, its cancellation."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Response
from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.gateway.admin.console.hostile import HOSTILE, check_inert, hostile_texts
from tests.support.batches import chat_line, client, submitted, until_ended
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream, whole
from tests.support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


def configuration(url: str, folder: Path, workers: int = 1) -> dict[str, Any]:
    return settings(url, batches={"storage": f"file:{folder}/files", "commit": "100ms"}, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_person_follows_and_cancels_a_batch(console: OpenConsole, tmp_path: Path, workers: int) -> None:
    held, answered = asyncio.Event(), 0

    async def answer(body: dict[str, Any]) -> Response:
        nonlocal answered
        if body["messages"][0]["content"] == "hi":  # not the other tenant's, whose line may be first
            if answered == 3:
                await held.wait()
            answered += 1
        return whole("done")

    async with upstream() as up, console(configuration(up.url, tmp_path, workers)) as c:
        up.behaviour = answer
        key, other = await c.issue(), await c.issue("beta")
        async with client(c.g, key) as sdk, client(c.g, other) as theirs:
            batch = await submitted(sdk, [chat_line(str(i)) for i in range(40)], metadata={"run": HOSTILE})
            await submitted(theirs, [chat_line("a", "theirs")])
            await c.open("/batches")
            await c.sign_in(await c.issue(role="tenant-admin"))
            await c.page.shows("in progress")
            await c.page.shows("of 40")
            assert await c.page.evaluate("document.querySelectorAll('tbody tr').length") == 1
            await c.page.until("document.querySelector('progress').value === 3")  # the list is renewed by itself
            await check_accessibility(c.page)
            await c.page.evaluate("document.querySelector('tbody a').click()")
            await c.page.shows("3 of 40")
            await c.page.shows(HOSTILE)
            await check_inert(c.page)
            await check_accessibility(c.page)
            await c.page.click("Cancel the batch")
            await check_accessibility(c.page)
            await c.page.click("Go on")
            await c.page.until("!document.querySelector('dialog[open]')")
            assert (await sdk.batches.retrieve(batch.id)).status == "in_progress"
            await c.page.click("Cancel the batch")
            await c.page.click("Confirm")
            held.set()
            assert (await until_ended(sdk, batch)).status == "cancelled"
            await c.page.until("document.querySelector('h2 .badge').textContent === 'cancelled'")
            await c.page.until(
                "![...document.querySelectorAll('button')].some((b) => b.textContent.startsWith('Cancel'))"
            )
            await check_accessibility(c.page)


async def test_an_operator_sees_the_batches_of_all_tenants_and_their_problems(
    console: OpenConsole, tmp_path: Path
) -> None:
    texts = [HOSTILE, *hostile_texts(8)]
    async with upstream(HOSTILE) as up, console(configuration(up.url, tmp_path)) as c:
        key, other = await c.issue(), await c.issue("beta")
        async with client(c.g, key) as sdk, client(c.g, other) as theirs:
            lines = [chat_line(text[:60]) for text in texts]
            wrong = [*lines, *lines]
            assert (await until_ended(sdk, await submitted(sdk, wrong))).status == "failed"
            assert (await until_ended(theirs, await submitted(theirs, lines))).status == "completed"
        await c.open("/batches")
        await c.sign_in(await c.issue(role="operator"))
        await c.page.until("document.querySelectorAll('tbody tr').length === 2")
        await c.page.choose("Status", "failed")
        await c.page.click("Search", "button")
        await c.page.until("document.querySelectorAll('tbody tr').length === 1")
        await c.page.evaluate("document.querySelector('tbody a').click()")
        await c.page.shows("Problems of the input")
        await c.page.shows("duplicate_custom_id")
        await check_inert(c.page)
        await check_accessibility(c.page)
        await c.page.click("All batches")
        await c.page.fill("Tenant", HOSTILE[:100])
        await c.page.click("Search", "button")
        await c.page.shows("No batch matches.")
        await check_inert(c.page)
        await c.open(f"/batches/{HOSTILE[:20].replace('/', '%2F')}")
        await c.page.shows("no batch has this id")
        await check_inert(c.page)


async def test_failed_lines_have_their_reason_and_their_file(console: OpenConsole, tmp_path: Path) -> None:
    async def answer(body: dict[str, Any]) -> Response:
        if body["messages"][0]["content"] == "bad":
            error = {"error": {"message": HOSTILE, "type": "invalid_request_error", "code": "too_long"}}
            return Response(400, [("content-type", "application/json")], json.dumps(error).encode())
        return whole("done")

    async with upstream() as up, console(configuration(up.url, tmp_path)) as c:
        up.behaviour = answer
        async with client(c.g, await c.issue()) as sdk:
            lines = [chat_line(f"line-{number}", "bad" if number == 1 else "hi") for number in range(3)]
            batch = await until_ended(sdk, await submitted(sdk, lines))
        key = await c.issue(role="tenant-admin")
        await c.open(f"/batches/{batch.id}")
        await c.sign_in(key)
        await c.page.shows("Failed lines")
        rows = await c.page.evaluate("[...document.querySelectorAll('tbody tr')].map((row) => row.innerText)")
        assert len(rows) == 1
        assert "line-1" in rows[0]
        assert HOSTILE in rows[0]
        await check_inert(c.page)
        await check_accessibility(c.page)
        await c.page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
        await c.page.click("Save all failed lines")
        saved = tmp_path / "saved/failures.jsonl"
        await until(lambda: asyncio.to_thread(saved.exists))
        assert json.loads(await asyncio.to_thread(saved.read_text))["custom_id"] == "line-1"
        for path, other in ((batch.id, await c.issue("beta", "tenant-admin")), ("none", key)):
            url, headers = f"{c.g.admin}/admin/batches/{path}/failures", {"authorization": f"Bearer {other}"}
            async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
                assert response.status == 404


async def test_without_the_section_the_screen_has_a_hint(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/batches")
        await c.page.shows("the configuration has no section `batches`")
        await check_accessibility(c.page)
