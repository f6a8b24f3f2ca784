"""The records of a real gateway's requests: over workers, and over killed workers."""

import asyncio
import os
import signal
from pathlib import Path

from tests.support.processes import gateway
from tests.support.request_records import configuration, search, until_stored
from tests.support.upstreams import upstream
from tests.support.usage import ask, reported


async def test_a_request_is_stored_with_its_timeline(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up.url, 2)) as g:
        key = await g.key()
        assert await ask(g, key, 50) == 40
        rows = await until_stored(g, 50)
        assert len(rows) == 50
        refused = await until_stored(g, 10, status="429", error="capacity")
        assert len(refused) == 10
        assert all("endpoint" not in row for row in refused)
        answered = next(row for row in rows if row["status"] == 200)
        shown = await search(g, f"/{answered['id']}")
        assert shown["decision"]["name"] == "rest"
        assert shown["decision"]["pools"] == ["main"]
        assert shown["decision"]["when"] == "every request"
        assert [attempt["endpoint"].startswith("main/") for attempt in shown["attempts"]] == [True]
        assert shown["attempts"][0]["at_ms"] <= shown["first_chunk_ms"] <= shown["duration_ms"]
        assert (shown["prompt_tokens"], shown["completion_tokens"], shown["cost"]) == (5, 7, "0.000026")
        body = await search(g, totals="true", status="200")
        assert [(each["requests"], each["cost"]) for each in body["totals"]["sums"]] == [(40, "0.00104")]


async def test_killed_workers_leave_records_that_add_up_to_the_invoice(tmp_path: Path) -> None:
    """Each worker is killed right after its answers: every counted request has its record."""
    settings = {**configuration("", 2), "usage": {"flush": "100ms"}}
    del settings["tenants"][0]["limits"]
    async with upstream() as up:
        settings["pools"][0]["endpoints"] = [up.url]
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            answered = await ask(g, key, 20)
            before = {row["id"] for row in await until_stored(g, answered)}
            for _ in range(3):
                answered += await ask(g, key, 20)
                worker = (await g.state())["workers"][0]["pid"]
                answered += await ask(g, key, 20)
                os.kill(worker, signal.SIGKILL)
                await g.until(f"all(w['pid'] not in (None, {worker}) for w in s['workers'])", seconds=300)
            async with asyncio.timeout(300):
                while True:
                    _, body = await reported(g, by="tenant")
                    billed = [row for row in body["usage"] if row["currency"]]
                    sums = (await search(g, totals="true"))["totals"]["sums"]
                    stored = [each for each in sums if each.get("currency")]
                    if billed and stored and billed[0]["requests"] == stored[0]["requests"]:
                        break
                    await asyncio.sleep(0.05)
            assert (billed[0]["amount"], billed[0]["requests"]) == (stored[0]["cost"], stored[0]["requests"])
            assert answered <= billed[0]["requests"] <= 140  # a killed worker may have counted what did not arrive
            ids = [row["id"] for row in await until_stored(g, billed[0]["requests"])]
            assert len(set(ids)) == len(ids) == billed[0]["requests"]
            assert before <= set(ids), "what was stored stays"
