"""Teams in a running gateway of two workers: limits change at run time; usage, invoices and records have the team."""

from pathlib import Path
from typing import Any

import pytest

from gateway.auth.keys import id_of
from tests.support.processes import gateway
from tests.support.upstreams import upstream
from tests.support.usage import reported

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


async def test_a_team_s_budget_is_set_at_run_time_and_its_use_is_reported(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up.url)) as g:
        assert (await g.administer("PUT", f"{TENANT}/teams/search", {"limits": {"requests": "5/h"}}))[0] == 201
        key = (await g.administer("POST", f"{TENANT}/keys", {"team": "search"}))[1]["key"]
        other = (await g.administer("POST", f"{TENANT}/keys", {}))[1]["key"]
        await g.until_status(key, 200)
        await g.until("any(t['team'] == 'search' and t['limits'] for t in s['tenants'][0]['teams'])")
        outcomes = [await g.chat(key) for _ in range(12)]
        refused = [body for status, body in outcomes if status == 429]
        assert refused
        assert "The team search of acme is over its limit of requests: 5/h" in refused[0]["error"]["message"]
        await g.until_status(other, 200)
        # Another budget, without a change of the file. The used share remains: the next request is due in 0.36 s.
        assert (await g.administer("PUT", f"{TENANT}/teams/search", {"limits": {"requests": "10000/h"}}))[0] == 200
        await g.until_status(key, 200)
        _, teams = await g.administer("GET", f"{TENANT}/teams")
        assert [(team["team"], team["stored_in"]) for team in teams["teams"]] == [
            ("fixed", "file"), ("search", "database"),
        ]  # fmt: skip
        _, usage = await g.administer("GET", "/admin/usage?by=team")
        amounts = {row["team"]: row for row in usage["usage"] if row["currency"]}
        assert set(amounts) == {"search", ""}
        month = str(usage and (await g.administer("GET", "/admin/usage?by=team&per=month"))[1]["usage"][0]["month"])
        _, invoice = await g.administer("GET", f"{TENANT}/invoices/{month}")
        by_team = {entry["team"]: entry["amount"] for entry in invoice["teams"]}
        assert by_team == {"search": amounts["search"]["amount"], None: amounts[""]["amount"]}
        total = sum(float(entry["amount"]) for entry in invoice["teams"])
        assert total == pytest.approx(float(invoice["totals"][0]["amount"]))
        _, page = await g.administer("GET", f"/admin/requests?team=search&status=200&key={id_of(key)}")
        assert {each["team"] for each in page["requests"]} == {"search"}
        _, text = await reported(g, format="focus")
        assert '{""team"": ""search""}' in text
