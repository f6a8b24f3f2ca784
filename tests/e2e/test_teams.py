"""Teams in a running gateway of two workers: limits change at run time; usage, invoices and records have the team."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.auth.keys import id_of
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
TENANT = "/admin/tenants/acme"


def configuration(url: str) -> dict[str, Any]:
    return {
        "workers": 2,
        "pools": [{"name": "main", "endpoints": [url]}],
        "models": [{"name": "chat", "routes": [{"to": "main"}], "price": {"request": "0.1 usd"}}],
        "tenants": [
            {
                "name": "acme",
                "models": ["*"],
                "limits": {"requests": "20000/h"},
                "teams": [{"name": "fixed", "limits": {"concurrency": 5}}],
            }
        ],
        "usage": {"flush": "100ms"},
        "requests": {"flush": "100ms"},
    }


class Client:
    def __init__(self, g: GatewayProcess, http: aiohttp.ClientSession) -> None:
        self.g = g
        self._http = http

    async def admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self._http.request(method, self.g.admin + path, json=body) as response:
            return response.status, await response.json()

    async def chat(self, key: str) -> tuple[int, Any]:
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {key}", "connection": "close"}  # another worker each time
        async with self._http.post(f"{self.g.url}/v1/chat/completions", json=body, headers=headers) as response:
            return response.status, await response.json()

    async def until(self, key: str, status: int) -> None:
        async with asyncio.timeout(300):
            while (await self.chat(key))[0] != status:
                await asyncio.sleep(0.05)


async def test_a_team_s_budget_is_set_at_run_time_and_its_use_is_reported(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up.url)) as g, aiohttp.ClientSession() as http:
        c = Client(g, http)
        assert (await c.admin("PUT", f"{TENANT}/teams/search", {"limits": {"requests": "5/h"}}))[0] == 201
        key = (await c.admin("POST", f"{TENANT}/keys", {"team": "search"}))[1]["key"]
        other = (await c.admin("POST", f"{TENANT}/keys", {}))[1]["key"]
        await c.until(key, 200)
        await g.until("any(t['team'] == 'search' and t['limits'] for t in s['tenants'][0]['teams'])")
        outcomes = [await c.chat(key) for _ in range(12)]
        refused = [body for status, body in outcomes if status == 429]
        assert refused
        assert "The team search of acme is over its limit of requests: 5/h" in refused[0]["error"]["message"]
        await c.until(other, 200)
        # Another budget, without a change of the file. The used share remains: the next request is due in 0.36 s.
        assert (await c.admin("PUT", f"{TENANT}/teams/search", {"limits": {"requests": "10000/h"}}))[0] == 200
        await c.until(key, 200)
        _, teams = await c.admin("GET", f"{TENANT}/teams")
        assert [(team["team"], team["stored_in"]) for team in teams["teams"]] == [
            ("fixed", "file"), ("search", "database"),
        ]  # fmt: skip
        _, usage = await c.admin("GET", "/admin/usage?by=team")
        amounts = {row["team"]: row for row in usage["usage"] if row["currency"]}
        assert set(amounts) == {"search", ""}
        month = str(usage and (await c.admin("GET", "/admin/usage?by=team&per=month"))[1]["usage"][0]["month"])
        _, invoice = await c.admin("GET", f"{TENANT}/invoices/{month}")
        by_team = {entry["team"]: entry["amount"] for entry in invoice["teams"]}
        assert by_team == {"search": amounts["search"]["amount"], None: amounts[""]["amount"]}
        total = sum(float(entry["amount"]) for entry in invoice["teams"])
        assert total == pytest.approx(float(invoice["totals"][0]["amount"]))
        _, page = await c.admin("GET", f"/admin/requests?team=search&status=200&key={id_of(key)}")
        assert {each["team"] for each in page["requests"]} == {"search"}
        async with http.get(f"{g.admin}/admin/usage?format=focus") as response:
            assert '{""team"": ""search""}' in await response.text()
