"""Names that clients invent use no lasting memory. `HEADRACE_SOAK_REQUESTS=200000` runs longer."""

import asyncio
import json
import os
from pathlib import Path
from random import Random

import aiohttp
import psutil
import pytest

from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import upstream

REQUESTS = int(os.environ.get("HEADRACE_SOAK_REQUESTS", "100000"))
CONNECTIONS, PIPELINED = 8, 16
MiB = 2**20
pytestmark = pytest.mark.timeout(1800)


def made_up(dice: Random, key: str) -> bytes:
    """A request full of unknown names: path, query, model, user, key, headers."""
    name = f"{dice.getrandbits(64):x}"
    path = dice.choice(("/v1/chat/completions", "/v1/chat/completions", f"/v1/models/{name}", f"/{name}/x?{name}=1"))
    model = dice.choice(("chat", f"{name}-model", f"family-{name}"))
    fields = {"model": model, "messages": [{"role": "user", "content": name}], "user": name, f"x-{name}": name}
    body = json.dumps(fields).encode()
    credential = key if dice.random() < 0.8 else f"hr-{name}"
    head = {
        "host": "gateway", "authorization": f"Bearer {credential}", "content-type": "application/json",
        "content-length": str(len(body)), "x-request-id": name, "x-session": name, f"x-{name}": name,
    }  # fmt: skip
    lines = "".join(f"{field}: {value}\r\n" for field, value in head.items())
    return f"{dice.choice(('POST', 'POST', 'POST', 'GET'))} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def flood(g: GatewayProcess, key: str, requests: int, seed: int) -> None:
    """Send `count` requests on one connection, a few at a time."""
    dice = Random(seed)
    host, port = g.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(requests // PIPELINED):
        writer.write(b"".join(made_up(dice, key) for _ in range(PIPELINED)))
        for _ in range(PIPELINED):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
            await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()


async def series(g: GatewayProcess) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/metrics") as response:
        return sum(not line.startswith("#") for line in (await response.text()).splitlines())


async def test_memory_and_metrics_do_not_grow_with_values_that_clients_invent(tmp_path: Path) -> None:
    async with upstream() as up:
        configuration = {
            "pools": [{"name": "up", "endpoints": [up.url], "balance": {"by": "prefix_affinity"}}],
            "models": [{"name": name, "routes": [{"to": "up"}]} for name in ("chat", "family-*")],
            "tenants": [
                {
                    "name": "acme",
                    "models": ["*"],
                    "limits": [
                        {"requests": "3000/min", "per": "user"},
                        {"tokens": "1M/min", "per": "model"},
                        {"concurrency": 1000, "per": "key"},
                    ],
                }
            ],
        }
        async with gateway(tmp_path, configuration, forked=False) as g:
            key = await g.key()
            process = psutil.Process(g.process.pid)

            async def floods(part: float, seed: int) -> tuple[float, int]:
                each = int(REQUESTS * part / CONNECTIONS)
                await asyncio.gather(*(flood(g, key, each, seed * 100 + i) for i in range(CONNECTIONS)))
                await g.until_idle()
                return process.memory_info().rss / MiB, await series(g)

            before, series_before = await floods(0.6, 1)  # every map that has a bound has reached it
            after, then = await floods(0.4, 2)
    print(f"{REQUESTS} requests: {before:.1f} MiB, then {after:.1f} MiB; {series_before} series, then {then}")
    assert then == series_before
    assert after - before < 5
