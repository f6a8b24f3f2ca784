"""Connections of several workers are even, and none is lost when a worker dies, stops or is replaced."""

import asyncio
import os
import signal
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from tests.support.processes import gateway, minimal
from tests.support.tls import make_certificate
from tests.support.traffic import traffic
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
MANY = 64


def shares(state: dict[str, Any], port: int) -> list[int]:
    """The number of established connections of each worker."""
    return [
        sum(
            each.status == psutil.CONN_ESTABLISHED and each.laddr[1] == port
            for each in psutil.Process(worker["pid"]).net_connections("tcp")
        )
        for worker in state["workers"]
    ]


async def until_shared(state: dict[str, Any], port: int, total: int) -> list[int]:
    async with asyncio.timeout(60):
        while sum(counts := shares(state, port)) != total:
            await asyncio.sleep(0.05)
    return counts


async def connect(count: int, port: int, tls: ssl.SSLContext | None = None) -> list[asyncio.StreamWriter]:
    """Connections of one client that opens all of them at the same time."""
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port, ssl=tls) for _ in range(count)))
    return [writer for _, writer in opened]


@pytest.mark.parametrize("workers", [2, 3])
async def test_connections_are_even_and_stay_so_when_a_worker_is_replaced(tmp_path: Path, workers: int) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=workers)) as g:
        state, port = await g.until_ready(workers), int(g.url.rpartition(":")[2])
        first = await connect(MANY, port)
        counts = await until_shared(state, port, MANY)
        assert max(counts) - min(counts) <= 2, counts
        os.kill(state["workers"][0]["pid"], signal.SIGKILL)
        await g.until("s['workers'][0]['restarts']")
        state = await g.until_ready(workers)
        left = sum(shares(state, port))
        second = await connect(MANY, port)
        counts = await until_shared(state, port, left + MANY)
        assert max(counts) - min(counts) <= 3, counts  # recent connections count a little
        for writer in (*first, *second):
            writer.transport.abort()


async def test_listeners_with_tls_and_for_grpc_are_even(tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "own")
    cert, key = made / "cert.pem", made / "key.pem"
    listen = {
        "http": "127.0.0.1:0",
        "grpc": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "tls": {"cert": str(cert), "key": str(key)},
    }
    trusted = ssl.create_default_context(cafile=str(cert))
    async with (
        upstream() as up,
        gateway(tmp_path, minimal(up.url, workers=2, listen=listen)) as g,
        AsyncExitStack() as exits,
    ):
        state = await g.until_ready(2)
        http, rpc = int(g.url.rpartition(":")[2]), int(g.grpc.rpartition(":")[2])
        writers = await connect(16, http, trusted)
        options = [("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        for _ in range(8):
            channel = grpc.aio.secure_channel(f"127.0.0.1:{rpc}", credentials, options=options)
            await exits.enter_async_context(channel)
            await channel.channel_ready()
        for port, total in ((http, 16), (rpc, 8)):
            counts = await until_shared(state, port, total)
            assert max(counts) - min(counts) <= 2, (port, counts)
        for writer in writers:
            writer.transport.abort()


async def test_killed_workers_cost_their_own_requests_and_nothing_else(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=3)) as g:
        victim, *others = (await g.until_ready(3))["workers"]
        async with traffic(g.url, await g.key(), clients=30, renew=1) as load:
            await load.until_answered(100)
            os.kill(victim["pid"], signal.SIGKILL)
            await g.until("s['workers'][0]['last_end']")
            [first, *rest] = (await g.until_ready(3))["workers"]
            assert (first["restarts"], first["last_end"]) == (1, "was killed by signal 9")
            assert [w["pid"] for w in rest] == [w["pid"] for w in others]
            assert 'headrace_worker_restarts_total{slot="0"} 1.0' in await g.metrics()
            for kill in range(3):
                await load.until_answered(200)
                state = await g.until("len([w for w in s['workers'] if w['state'] == 'ready']) > 1")
                ready = [worker for worker in state["workers"] if worker["state"] == "ready"]
                os.kill(ready[kill % len(ready)]["pid"], signal.SIGKILL)
            await g.until_ready(3)
            await load.until_answered(200)
        assert len(load.dropped) <= 4 * 30  # those that a killed worker had
        assert (load.refused, set(load.statuses)) == (0, {200})
        assert load.answered + len(load.dropped) == load.sent
