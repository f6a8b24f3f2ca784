"""Signals at every moment of a gateway's life, one process and several workers alike."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.support.issuers import issuer
from tests.support.processes import GatewayProcess, gateway, minimal, starting_gateway
from tests.support.upstreams import stream, upstream

pytestmark = pytest.mark.timeout(1800)
WORKERS = pytest.mark.parametrize("workers", [1, 2])


class SilentKeyServer:
    """Sends no response until `hang_up` is set, so that a gateway that fetches keys from it stays in its start."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.hang_up = asyncio.Event()
        self.url = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached.set()
        await self.hang_up.wait()
        writer.close()


@asynccontextmanager
async def silent_key_server() -> AsyncIterator[SilentKeyServer]:
    made = SilentKeyServer()
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"
    async with server:
        try:
            yield made
        finally:
            made.hang_up.set()


@asynccontextmanager
async def starting(folder: Path, workers: int) -> AsyncIterator[tuple[GatewayProcess, SilentKeyServer]]:
    """A gateway in its start, in which it stays until the server of keys hangs up."""
    async with upstream() as up, silent_key_server() as keys:
        written = minimal(up.url, workers=workers, auth={"jwt": [issuer(keys.url)]})
        async with starting_gateway(folder, written) as g:
            await asyncio.wait_for(keys.reached.wait(), 300)
            yield g, keys


@WORKERS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_gateway_that_is_stopped_while_it_starts_ends_in_order(
    workers: int, number: signal.Signals, tmp_path: Path
) -> None:
    async with starting(tmp_path, workers) as (g, _):
        assert await g.stop(number) == 0
        assert g.output.rstrip().endswith("stopped")
        assert "Traceback" not in g.output


@WORKERS
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
async def test_a_reload_that_is_ordered_during_the_start_happens_after_it(
    workers: int, number: signal.Signals, tmp_path: Path
) -> None:
    restart = "all workers restarted" if workers == 2 else "SIGUSR2 ignored"
    async with starting(tmp_path, workers) as (g, keys):
        g.process.send_signal(number)
        keys.hang_up.set()
        await g.listens()
        await g.printed("configuration reloaded" if number == signal.SIGHUP else restart)
        assert await g.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_is_stopped_by_hand_drains_and_is_replaced(number: signal.Signals, tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=2)) as g:
        up.behaviour = lambda body: asyncio.sleep(0, stream("a b c d e f g h", gap=0.1))
        key = await g.key()
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        state = await g.until_ready(2)
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            assert response.status == 200
            for worker in state["workers"]:
                os.kill(worker["pid"], number)
            text = await response.text() if number == signal.SIGTERM else ""
        assert ("data: [DONE]" in text) == (number == signal.SIGTERM)
        await g.until("sum(w['restarts'] for w in s['workers']) == 2")
        state = await g.until_ready(2)
        assert [worker["last_end"] for worker in state["workers"]] == ["ended with status 0"] * 2
