"""Usage of a real gateway: over workers that are killed, in reports, exports and invoices."""

import asyncio
import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import GatewayProcess, command, gateway, minimal
from tests.support.upstreams import upstream
from tests.support.usage import ask, reported

PRICE = {"prompt": "1 usd/1M", "completion": "3 usd/1M"}
COST = 5 * 10**6 + 7 * 3 * 10**6
"""Picos of an answer: 5 tokens and 7."""


def configuration(url: str) -> dict[str, Any]:
    return {
        "workers": 2,
        "usage": {"flush": "100ms"},
        "pools": [{"name": "main", "endpoints": [url]}],
        "models": [{"name": "chat", "price": PRICE, "routes": [{"to": "main"}]}],
        "tenants": [{"name": name, "models": ["*"]} for name in ("acme", "beta")],
    }


async def until_counted(g: GatewayProcess, tenant: str, requests: int) -> dict[str, Any]:
    async with asyncio.timeout(300):
        while True:
            _, body = await reported(g, tenant=tenant)
            if body["usage"] and body["usage"][0]["requests"] >= requests:
                return dict(body["usage"][0])
            await asyncio.sleep(0.05)


async def test_usage_is_reported_and_billed(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = configuration(up.url)
        async with gateway(tmp_path, settings) as g:
            acme, beta = await g.key(), await g.key("beta")
            assert await ask(g, acme, 30) == 30
            assert await ask(g, beta, 10) == 10
            row = await until_counted(g, "acme", 30)
            assert (row["picos"], row["currency"], row["failures"]) == (30 * COST, "usd", 0)
            assert (row["prompt_tokens"], row["completion_tokens"]) == (150, 210)
            _, body = await reported(g, by="tenant,model", per="day")
            assert [(row["tenant"], row["model"], row["requests"]) for row in body["usage"]] == [
                ("acme", "chat", 30),
                ("beta", "chat", 10),
            ]
            _, page = await reported(g, limit="1")
            _, rest = await reported(g, limit="1", after=json.dumps(page["next"]))
            assert [row["tenant"] for row in page["usage"] + rest["usage"]] == ["acme", "beta"]
            status, body = await reported(g, per="week")
            assert (status, body["error"]["param"]) == (400, "per")
        month = f"{datetime.now(UTC):%Y-%m}"
        path = ("--config", str(g.config))
        status, printed, _ = await command("usage", "invoice", "acme", "--month", month, *path)
        assert status == 0
        assert json.loads(printed)["totals"] == [{"amount": "0.00078", "currency": "usd"}]
        _, printed, _ = await command("usage", "export", "--focus", *path)
        charges = list(csv.DictReader(io.StringIO(printed)))
        assert {charge["BillingAccountId"]: charge["BilledCost"] for charge in charges} == {
            "acme": "0.00078",
            "beta": "0.00026",
        }
        _, printed, _ = await command("usage", "list", "--by", "model", *path)
        assert printed.splitlines()[1].split()[:2] == ["chat", "40"]
        assert (await command("usage", "list", "--per", "week", *path))[0] == 2


async def test_a_file_without_usage_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    state = {"database": f"sqlite:///{tmp_path}/state.db"}
    path.write_text(yaml.safe_dump({"version": 1, "state": state, **minimal("http://127.0.0.1:9")}))
    status, _, error = await command("usage", "list", "--config", str(path))
    assert (status, "no section `usage`" in error) == (0, True)
