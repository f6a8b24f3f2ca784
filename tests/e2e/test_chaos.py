"""Reloads and kills without end: a real gateway among real servers. `HEADRACE_CHAOS_SECONDS=60` lasts longer."""

import asyncio
import itertools
import json
import os
import signal
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.support.mortal_server import words
from tests.support.mortals import Mortal, mortals
from tests.support.processes import GatewayProcess, gateway

SECONDS = float(os.environ.get("HEADRACE_CHAOS_SECONDS", "6"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(SECONDS + 180)]


@dataclass
class Exchange:
    """One request and its answer."""

    began: float
    status: int
    body: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    question: str = ""


class Clients:
    """Send requests at a steady rate, whatever their outcome."""

    def __init__(self, g: GatewayProcess, key: str) -> None:
        self._url = f"{g.url}/v1/chat/completions"
        self._headers = {"authorization": f"Bearer {key}"}
        self._numbers = itertools.count()
        self.exchanges: list[Exchange] = []

    async def chat(self, http: aiohttp.ClientSession, *, stream: bool = False) -> None:
        question = f"q{next(self._numbers)}"
        body = {"model": "chat", "messages": [{"role": "user", "content": question}], "stream": stream}
        exchange = Exchange(asyncio.get_running_loop().time(), 0, question=question)
        self.exchanges.append(exchange)
        async with http.post(self._url, json=body, headers=self._headers) as response:
            text = await response.text()
        if response.content_type == "text/event-stream":
            exchange.events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
        else:
            exchange.body = json.loads(text)
        exchange.status = response.status

    async def run(self, rate: float, seconds: float, *, stream: bool = False) -> None:
        """Send `rate` requests a second, then wait for the last answer."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            asyncio.TaskGroup() as group,
        ):
            for number in range(int(rate * seconds)):
                await asyncio.sleep(began + number / rate - loop.time())
                group.create_task(self.chat(http, stream=stream))


async def every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Call `act` forever, never twice at a time."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        await act()
        await asyncio.sleep(max(0.0, due - loop.time()))


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


async def test_a_reload_every_100_ms_fails_no_request_and_is_in_force_within_a_second(tmp_path: Path) -> None:
    async with mortals(2) as servers, gateway(tmp_path, versioned(0, servers)) as g:
        clients = Clients(g, await g.key())
        base = yaml.safe_load(g.config.read_text())
        loop = asyncio.get_running_loop()
        written = [loop.time()]

        async def reload() -> None:
            draft = g.config.with_suffix(".draft")
            draft.write_text(yaml.safe_dump({**base, **versioned(len(written), servers)}))
            draft.replace(g.config)
            g.process.send_signal(signal.SIGHUP)
            written.append(loop.time())

        async with meanwhile(every(0.1, reload)):
            await clients.run(200, SECONDS)
        assert Counter(exchange.status for exchange in clients.exchanges) == {200: int(200 * SECONDS)}
        ages = []
        for exchange in clients.exchanges:
            version = int(exchange.body["model"].removeprefix("v"))
            latest = bisect_right(written, exchange.began) - 1
            ages.append(max(0.0, exchange.began - written[version + 1]) if version < latest else 0.0)
        reloads = g.output.count("configuration reloaded")
        print(f"{len(written) - 1} reloads written, {reloads} done, oldest decision {max(ages):.3f} s")
        assert reloads > 3 * SECONDS
        # A stall of the whole machine makes any decision old.
        assert statistics.quantiles(ages, n=100)[-1] < 1.0
        await g.until_idle()


async def test_a_server_killed_every_second_fails_no_whole_answer_and_no_stream_lies(tmp_path: Path) -> None:
    async with mortals(3) as servers:
        pool = {
            "name": "up",
            "endpoints": [server.url for server in servers],
            "probe": {"interval": "250ms", "timeout": "1s"},
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
                killed.append(mortal := next(turns))
                await mortal.kill()
                await mortal.start()  # of three, two are always there

            async with meanwhile(every(1.0, kill)):
                await asyncio.gather(wholes.run(100, SECONDS), streams.run(25, SECONDS, stream=True))
            await g.until_idle()
            async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/metrics") as response:
                metrics = await response.text()
    assert len(killed) > SECONDS / 3
    for exchange in wholes.exchanges:
        assert exchange.status == 200, exchange
        assert exchange.body["choices"][0]["message"]["content"] == "".join(words(exchange.question))
    ends = Counter(ending(exchange) for exchange in streams.exchanges)
    print(f"{len(killed)} kills, {len(wholes.exchanges)} whole answers, streams: {dict(ends)}")
    print([line for line in metrics.splitlines() if line.startswith("headrace_resume")])
    assert ends["whole"] > 0.8 * len(streams.exchanges)


def ending(exchange: Exchange) -> str:
    """How a stream ended; AssertionError if its text is wrong."""
    if exchange.status != 200:
        assert exchange.body["error"]["code"], exchange
        return "refused"
    truth = words(exchange.question)
    chunks = [json.loads(event) for event in exchange.events if event != "[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    text = [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
    assert "".join(text) == "".join(truth)[: len("".join(text))], exchange
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    if exchange.events[-1] == "[DONE]":
        assert (len(text), reasons) == (len(truth), ["stop"]), exchange
        return "whole"
    assert chunks[-1]["error"]["code"], exchange
    assert not reasons or len(text) == len(truth), exchange  # it was killed between its last chunk and its [DONE]
    return "broken, and said so"
