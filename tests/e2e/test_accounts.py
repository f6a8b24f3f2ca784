"""Two keys of one provider behind a real gateway of two workers: what one worker learns, both know."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import gateway, minimal
from tests.support.providers.accounts import Accounts, accounts

pytestmark = pytest.mark.timeout(1200)


def two_keys(folder: Path, provider: Accounts, **fields: Any) -> dict[str, Any]:
    for name in "ab":
        folder.joinpath(f"{name}.key").write_text(f"key-{name}")
    endpoints = [
        {"url": provider.url, "key": "file:a.key", "name": "first"},
        {"url": provider.url, "key": "file:b.key"},
    ]
    protocol = {"name": "openai", "dialect": "openai"}
    pool = {
        "name": "main",
        "protocol": protocol,
        "probe": None,
        "balance": {"by": "round_robin"},
        "endpoints": endpoints,
    }
    models = [{"name": "m*", "routes": [{"to": "main"}]}]
    return minimal(provider.url, workers=2, pools=[{**pool, **fields}], models=models)


async def test_a_key_that_one_worker_saw_refused_rests_in_both(tmp_path: Path) -> None:
    async with accounts(requests=1000.0, period=3600.0) as provider:
        provider.others["key-a", "m1"] = 0.0
        async with gateway(tmp_path, two_keys(tmp_path, provider)) as g:
            key = await g.key()
            await g.until_ready(2)
            while not provider.refused:  # each worker begins its turns at an endpoint of its own
                assert (await g.chat(key, model="m1"))[0] == 200
            answers = await asyncio.gather(*(g.chat(key, model="m1") for _ in range(40)))
            assert {status for status, _ in answers} == {200}
            assert provider.refused == {("key-a", "m1"): 1}  # no worker has tried it again
            others = await asyncio.gather(*(g.chat(key, model="m2") for _ in range(40)))
            assert {status for status, _ in others} == {200}
            assert provider.sent["key-a", "m2"] >= 10
            _, described = await g.administer("GET", "/admin/pools")
            assert "key-" not in str(described)
            endpoint = next(one for one in described["pools"][0]["endpoints"] if one["endpoint"] == "main/first")
            assert endpoint["models"]["m1"]["rest_seconds"] > 0


async def test_workers_share_the_limits_of_an_endpoint_and_refuse_with_its_reset(tmp_path: Path) -> None:
    async with accounts(requests=1000.0) as provider:
        endpoints = [{"url": provider.url, "key": "file:a.key", "limits": {"requests": "20/hour"}}]
        async with gateway(tmp_path, two_keys(tmp_path, provider, endpoints=endpoints)) as g:
            key = await g.key()
            await g.until_ready(2)
            answers = await asyncio.gather(*(g.chat(key, model="m1") for _ in range(60)))
            statuses = [status for status, _ in answers]
            assert statuses.count(200) == 20
            assert statuses.count(429) == 40
            codes = {body["error"]["code"] for status, body in answers if status == 429}
            assert codes == {"upstream_rate_limited"}
            assert sum(provider.sent.values()) == 20
