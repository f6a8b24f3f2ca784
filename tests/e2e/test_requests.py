"""The records of a real gateway's requests: over workers, killed workers, a reload and a full disk."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_usage import ask
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import upstream


def configuration(url: str, workers: int) -> dict[str, Any]:
    return {
        "workers": workers,
        "requests": {"flush": "100ms"},
        "pools": [{"name": "main", "endpoints": [url]}],
        "models": [
            {
                "name": "chat",
                "price": {"prompt": "1 usd/1M", "completion": "3 usd/1M"},
                "routes": [
                    {"name": "long", "when": {"prompt_tokens": ">4000"}, "to": "main"},
                    {"name": "rest", "to": "main"},
                ],
            }
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"requests": "40/hour"}}],
    }


async def search(g: GatewayProcess, path: str = "", **query: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/admin/requests{path}", params=query) as response:
        return dict(await response.json())


async def until_stored(g: GatewayProcess, count: int, **query: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(300):
        while True:
            rows = list((await search(g, limit="1000", **query))["requests"])
            if len(rows) >= count:
                return rows
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_request_is_stored_with_its_timeline(tmp_path: Path, workers: int) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up.url, workers)) as g:
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


async def test_a_killed_worker_costs_the_last_requests_at_most(tmp_path: Path) -> None:
    settings = configuration("", 2)
    del settings["tenants"][0]["limits"]
    async with upstream() as up:
        settings["pools"][0]["endpoints"] = [up.url]
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            before = await ask(g, key, 30)
            await until_stored(g, before)
            worker = (await g.state())["workers"][0]["pid"]
            os.kill(worker, signal.SIGKILL)
            await g.until(f"all(w['pid'] not in (None, {worker}) for w in s['workers'])", seconds=300)
            after = await ask(g, key, 30)
            rows = await until_stored(g, before + after)
            assert len({row["id"] for row in rows}) == len(rows) >= before + after
    assert list((tmp_path / "state.db.requests" / "spool").iterdir()) == []


async def test_killed_workers_leave_records_that_add_up_to_the_invoice(tmp_path: Path) -> None:
    """Each worker is killed right after its answers, while their records are in memory."""
    settings = {**configuration("", 2), "usage": {"flush": "100ms"}}
    del settings["tenants"][0]["limits"]
    async with upstream() as up:
        settings["pools"][0]["endpoints"] = [up.url]
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            answered = 0
            for _ in range(3):
                answered += await ask(g, key, 20)
                worker = (await g.state())["workers"][0]["pid"]
                answered += await ask(g, key, 20)
                os.kill(worker, signal.SIGKILL)
                await g.until(f"all(w['pid'] not in (None, {worker}) for w in s['workers'])", seconds=300)
            async with asyncio.timeout(300), aiohttp.ClientSession() as http:
                while True:
                    async with http.get(f"{g.admin}/admin/usage", params={"by": "tenant"}) as response:
                        billed = [row for row in (await response.json())["usage"] if row["currency"]]
                    sums = (await search(g, totals="true"))["totals"]["sums"]
                    stored = [each for each in sums if each.get("currency")]
                    if billed and stored and billed[0]["requests"] == stored[0]["requests"]:
                        break
                    await asyncio.sleep(0.05)
            assert (billed[0]["amount"], billed[0]["requests"]) == (stored[0]["cost"], stored[0]["requests"])
            assert answered <= billed[0]["requests"]
    assert list((tmp_path / "state.db.requests" / "spool").iterdir()) == []
    assert list((tmp_path / "state.db.usage").iterdir()) == []
