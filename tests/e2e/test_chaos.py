"""Reloads and kills without end: a real gateway among real servers. `HEADRACE_CHAOS_SECONDS=60` lasts longer."""

import asyncio
import itertools
import os
import re
import signal
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.exchanges import Clients, ending
from tests.support.mortal_server import words
from tests.support.mortals import Mortal, mortals
from tests.support.processes import GatewayProcess, gateway

SECONDS = float(os.environ.get("HEADRACE_CHAOS_SECONDS", "6"))
PATIENCE = 240.0
pytestmark = pytest.mark.timeout(SECONDS + 2 * PATIENCE)


async def every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Call `act` forever, never twice at a time."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        await act()
        await asyncio.sleep(max(0.0, due - loop.time()))


async def repeated(run: Callable[[], Awaitable[object]], enough: Callable[[], bool]) -> None:
    """Repeat for SECONDS, and until enough has happened: on a slow machine that takes longer."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    async with asyncio.timeout(SECONDS + PATIENCE):
        while loop.time() < end or not enough():
            await run()


@asynccontextmanager
async def meanwhile(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run `work` until the end of the block; an error of `work` is raised there."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        if not task.done():
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def versioned(version: int, servers: list[Mortal]) -> dict[str, Any]:
    """Each version routes all requests to another pool, whose server returns the version's number."""
    server = servers[version % len(servers)]
    pool = {"name": f"p{version % 3}", "endpoints": [server.url], "model": f"v{version}", "probe": {"interval": "1s"}}
    return {
        "pools": [pool],
        "models": [{"name": "chat", "routes": [{"to": pool["name"]}]}],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"requests": f"{100_000 + version}/min"}}],
    }


def reloads(g: GatewayProcess) -> list[float]:
    """The times at which the gateway logged reloads, in whole milliseconds."""
    logged = re.findall(r"^(\S+ \S+),(\d{3}) .*configuration reloaded", g.output, re.MULTILINE)
    return [time.mktime(time.strptime(second, "%Y-%m-%d %H:%M:%S")) + int(ms) / 1000 for second, ms in logged]


async def test_a_reload_every_100_ms_fails_no_request_and_is_in_force_when_it_is_logged(tmp_path: Path) -> None:
    async with mortals(2) as servers, gateway(tmp_path, versioned(0, servers)) as g:
        clients = Clients(g, await g.key())
        base = yaml.safe_load(g.config.read_text())
        written = [time.time()]

        async def reload() -> None:
            draft = g.config.with_suffix(".draft")
            draft.write_text(yaml.safe_dump({**base, **versioned(len(written), servers)}))
            draft.replace(g.config)
            written.append(time.time())
            g.process.send_signal(signal.SIGHUP)

        async with meanwhile(every(0.1, reload)):
            await repeated(lambda: clients.run(200, 1), lambda: len(reloads(g)) > 15)
        assert {exchange.status for exchange in clients.exchanges} == {200}
        done = reloads(g)
        fresh = 0
        for exchange in clients.exchanges:
            logged = bisect_right(done, exchange.began - 0.001)
            if logged < 2:
                continue
            # The last reload before the request began to read the file after the reload before it was logged.
            version = int(exchange.body["model"].removeprefix("v"))
            assert version >= bisect_right(written, done[logged - 2]) - 1, exchange
            fresh += 1
        print(f"{len(written) - 1} reloads written, {len(done)} done, {fresh} decisions compared")
        assert fresh > 100
        await g.until_idle()


async def test_a_server_killed_again_and_again_fails_no_whole_answer_and_no_stream_lies(tmp_path: Path) -> None:
    async with mortals(3) as servers:
        pool = {
            "name": "up",
            "endpoints": [server.url for server in servers],
            "probe": {"interval": "250ms", "timeout": "10s"},
            "breaker": {"failures": 3, "open_for": "500ms"},
            "resume": "text",
        }
        configuration = {
            "pools": [pool],
            "models": [{"name": "chat", "routes": [{"to": "up", "retry": {"attempts": 3}}]}],
            "tenants": [{"name": "acme", "models": ["*"]}],
        }
        async with gateway(tmp_path, configuration) as g:
            key = await g.key()
            wholes, streams = Clients(g, key), Clients(g, key)
            turns = itertools.cycle(servers)
            killed: list[Mortal] = []

            async def kill() -> None:
                """Of three servers, two are always there, and the next is killed when most streams have ended."""
                killed.append(mortal := next(turns))
                await mortal.kill()
                await mortal.start()
                ended = streams.ended
                await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
                while streams.ended < ended + 20:
                    await asyncio.sleep(0.02)

            async with meanwhile(every(1.0, kill)):
                await repeated(
                    lambda: asyncio.gather(wholes.run(100, 2), streams.run(25, 2, stream=True)),
                    lambda: len(killed) > 3,
                )
            await g.until_idle()
            metrics = await g.metrics()
    for exchange in wholes.exchanges:
        assert exchange.status == 200, exchange
        assert exchange.body["choices"][0]["message"]["content"] == "".join(words(exchange.question))
    ends = Counter(ending(exchange) for exchange in streams.exchanges)
    print(f"{len(killed)} kills, {len(wholes.exchanges)} whole answers, streams: {dict(ends)}")
    print([line for line in metrics.splitlines() if line.startswith("headrace_resume")])
    assert ends["whole"] > 0.8 * len(streams.exchanges)
