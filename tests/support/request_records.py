"""Records of requests: a configuration of a gateway that stores them, and searches of it."""

import asyncio
from typing import Any
from urllib.parse import urlencode

from tests.support.processes import GatewayProcess


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
    return dict((await g.administer("GET", f"/admin/requests{path}?{urlencode(query)}"))[1])


async def until_stored(g: GatewayProcess, count: int, **query: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(300):
        while True:
            rows = list((await search(g, limit="1000", **query))["requests"])
            if len(rows) >= count:
                return rows
            await asyncio.sleep(0.05)
