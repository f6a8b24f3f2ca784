"""Hard budgets of real gateways: over kills, restarts, reloads, rotated keys and several workers."""

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.schema.money import PICOS
from gateway.auth.keys import id_of
from tests.support.processes import GatewayProcess, command, gateway, minimal
from tests.support.request_records import until_stored
from tests.support.upstreams import upstream
from tests.support.usage import ask, reported


def configuration(url: str, limits: Any, **sections: Any) -> dict[str, Any]:
    """Each answer costs one dollar."""
    models = [{"name": "chat", "price": {"request": "1 usd"}, "routes": [{"to": "up"}]}]
    tenants = [{"name": "acme", "models": ["*"], "limits": limits}]
    return minimal(url, usage={"flush": "100ms"}, models=models, tenants=tenants, **sections)


async def rotated(g: GatewayProcess, key: str) -> str:
    status, out, err = await command("keys", "rotate", str(id_of(key)), "--config", str(g.config))
    assert status == 0, err
    return out.strip()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_budget_of_a_key_outlives_its_rotation_and_the_gateway(tmp_path: Path, workers: int) -> None:
    async with upstream() as up:
        settings = configuration(up.url, [{"spend": "3 usd/month", "per": "key"}], workers=workers)
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            assert await ask(g, key, 3) == 3
            assert (await g.chat(key))[0] == 429
            new = await rotated(g, key)
            await g.until_status(new, 429)
            assert (await g.chat(key))[0] == 429
            await g.stop(signal.SIGKILL)
        async with gateway(tmp_path, settings) as g:
            assert [(await g.chat(each))[0] for each in (new, key, new)] == [429] * 3
            other = await g.key()
            assert await ask(g, other, 4) == 3
            _, body = await reported(g, by="key")
            assert {row["key"]: row["picos"] for row in body["usage"] if row["picos"]} == {
                id_of(key): 3 * PICOS,
                id_of(other): 3 * PICOS,
            }


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_budget_that_is_added_begins_with_the_recorded_usage(tmp_path: Path, workers: int) -> None:
    """By a reload, and at a later start. The invoice, the records and the budget agree."""
    async with upstream() as up:
        settings = configuration(up.url, [], workers=workers, requests={"flush": "100ms"})
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            assert await ask(g, key, 5) == 5
            await until_stored(g, 5)
            limits: list[dict[str, Any]] = [{"spend": "7 usd/month"}]
            await reloaded(g, configuration(up.url, limits, workers=workers, requests={"flush": "100ms"}))
            await g.until("s['tenants'][0]['limits'][0]['remaining']['spend'] == 2")
            assert await ask(g, key, 6) == 2
            await g.stop(signal.SIGKILL)
        limits = [{"spend": "8 usd/month"}, {"spend": "9 usd/month", "per": "key"}]
        settings = configuration(up.url, limits, workers=workers, requests={"flush": "100ms"})
        async with gateway(tmp_path, settings) as g:
            other = await g.key()
            assert await ask(g, key, 4) == 1
            assert (await g.chat(other))[0] == 429
            _, body = await reported(g, by="key")
            assert sum(row["picos"] for row in body["usage"]) == 8 * PICOS
            rows = await until_stored(g, 8, status="200")
            assert sum(float(row["cost"]) for row in rows) == 8
            _, invoice = await g.administer("GET", f"/admin/tenants/acme/invoices/{datetime.now(UTC):%Y-%m}")
            assert [float(each["amount"]) for each in invoice["totals"]] == [8]


async def reloaded(g: GatewayProcess, settings: dict[str, Any]) -> None:
    """Put another file in force."""
    before = g.output.count("configuration reloaded")
    g.config.write_text(yaml.safe_dump({**yaml.safe_load(g.config.read_text()), **settings}))
    async with asyncio.timeout(300):
        while g.output.count("configuration reloaded") == before:
            await asyncio.sleep(0.05)


async def test_rates_of_a_day_outlive_the_gateway(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = configuration(up.url, [{"requests": "3/day"}, {"tokens": "100k/day", "per": "user"}])
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            assert await ask(g, key, 3) == 3
            assert (await g.chat(key))[0] == 429
            await g.stop(signal.SIGKILL)
        async with gateway(tmp_path, settings) as g:
            assert (await g.chat(key))[0] == 429
