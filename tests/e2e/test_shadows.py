"""Shadow traffic over real processes: copies are compared behind the clients, and change nothing for them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from adapters.http1.message import Response
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream, whole

CLIENTS = 4
AT_MOST = {"concurrency": 64, "requests": "100000/s"}


def configuration(v1: Upstream, v2: Upstream, workers: int = 1, **shadow: Any) -> dict[str, Any]:
    written = {"name": "s", "to": "v2", "share": "100%", "at_most": AT_MOST, **shadow}
    price = {"prompt": "1 usd/1M", "completion": "2 usd/1M"}
    return {
        "workers": workers,
        "pools": [{"name": name, "endpoints": [up.url]} for name, up in (("v1", v1), ("v2", v2))],
        "models": [{"name": "chat", "price": price, "routes": [{"to": "v1", "shadow": written}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def shown(g: GatewayProcess) -> dict[str, Any]:
    status, view = await g.administer("GET", "/admin/shadows/s")
    assert status == 200, view
    return dict(view)


async def chats(g: GatewayProcess, key: str, count: int, **fields: Any) -> list[tuple[int, str]]:
    """Send so many chats, some at a time. Returns the statuses and the texts that clients received."""
    numbers, received = iter(range(count)), list[tuple[int, str]]()
    headers = {"authorization": f"Bearer {key}"}

    async def client(http: aiohttp.ClientSession) -> None:
        for number in numbers:
            body = {"model": "chat", "messages": [{"role": "user", "content": f"number {number}"}], **fields}
            async with http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
                text = await response.text()
                if response.status == 200 and not fields.get("stream"):
                    text = json.loads(text)["choices"][0]["message"]["content"]
                received.append((response.status, text))

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as clients:
        for _ in range(CLIENTS):
            clients.create_task(client(http))
    return received


async def until_judged(g: GatewayProcess, key: str, verdict: str, **fields: Any) -> dict[str, Any]:
    """Send until the verdict is certain."""
    async with asyncio.timeout(100):
        while (view := await shown(g))["verdict"] != verdict:
            assert {status for status, _ in await chats(g, key, 20, **fields)} == {200}
    return view


async def test_wrong_answers_are_detected(tmp_path: Path) -> None:
    """One answer of five is wrong. Clients receive those of the primary only."""
    count = 0

    async def sometimes_wrong(_: dict[str, Any]) -> Response:
        nonlocal count
        count += 1
        return whole("wrong" if count % 5 == 0 else "hello there")

    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, workers=2)) as g:
        v2.behaviour = sometimes_wrong
        key = await g.key()
        view = await until_judged(g, key, "differs")
        assert view["e_value"] >= 100
        assert view["fields"].keys() == {"text"}
        assert {text for _, text in await chats(g, key, 20)} == {"hello there"}
        for verb, expected in (("list", "s: differs, "), ("show", "evidence: e ")):
            names = ["s"] if verb == "show" else []
            status, printed, _ = await command("shadow", verb, *names, "--config", str(g.config))
            assert (status, expected in printed) == (0, True)
        log = await command("audit", "list", "--json", "--config", str(g.config))
        assert "shadow.differs" in [entry["action"] for entry in json.loads(log[1])]
        await g.printed("shadow s: differs after ")


async def test_copies_are_cancelled_when_the_gateway_stops(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def hang(_: dict[str, Any]) -> Response:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return whole("never")

    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2)) as g:
        v2.behaviour = hang
        await chats(g, await g.key(), 4)
        async with asyncio.timeout(30):
            while len(v2.received) < 4:
                await asyncio.sleep(0.02)
        assert await g.stop() == 0
        async with asyncio.timeout(30):
            await cancelled.wait()
