"""What a gateway needs of memory, connections and disk: `python -m loadtests.bench_sizing --help`.

Each gateway runs with `usage`, `requests` and two limits over a small upstream in this process. Memory is the
proportional set size of all its processes, so that shared pages count once. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil
import yaml
from aiohttp import web

from config.loader import load
from gateway.auth.audit import Actor
from gateway.auth.pepper import load_pepper
from gateway.auth.store import KeyStore
from gateway.features.requests.days import open_days
from gateway.features.requests.store import RequestStore
from gateway.features.usage.labels import COUNTERS, HOUR, UsageLabels, UsageRow
from gateway.features.usage.rows import hour_values
from gateway.features.usage.store import UsageStore, write_hours
from loadtests.bench_requests import fill
from loadtests.servers import REPOSITORY, free_port

MIB = 1024**2
SETTLE_S = 4.0
"""Longer than the periods in which usage and requests are written."""
BODY = {"model": "chat", "messages": [{"role": "user", "content": "hi " * 200}]}
ANSWER = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello " * 100}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 210, "completion_tokens": 101, "total_tokens": 311},
}  # fmt: skip


class Figures(NamedTuple):
    """Of one gateway."""

    workers: int
    idle_mib: float
    loaded_mib: float
    per_stream_kib: float
    connections: int | None


async def answer(request: web.Request) -> web.StreamResponse:
    """A chat. A streamed one sends an event, then waits until its client leaves."""
    if request.method != "POST":
        return web.Response()
    if not (await request.json()).get("stream"):
        return web.json_response(ANSWER)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": None}]}
    await response.write(
        b"data: " + json.dumps({**ANSWER, "object": "chat.completion.chunk", **delta}).encode() + b"\n\n"
    )
    await asyncio.sleep(3600)
    return response


def settings(database: str, upstream: str, workers: int, folder: Path) -> dict[str, Any]:
    """The file: everything that stores something, on free ports."""
    return {
        "version": 1,
        "listen": {"http": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"},
        "workers": workers,
        "state": {"database": database, "folder": str(folder / "sealed")},
        "auth": {"pepper": "file:pepper"},
        "access_log": {"to": str(folder / "access.log")},
        "usage": {},
        "requests": {"retention": "7d"},
        "http": {"max_connections": 8000},
        "pools": [{"name": "up", "endpoints": [upstream], "max_connections": 8000, "probe": None}],
        "models": [
            {"name": "chat", "routes": [{"to": "up"}], "price": {"prompt": "1 usd/1M", "completion": "1 usd/1M"}}
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"requests": "1M/min", "tokens": "100M/min"}}],
    }  # fmt: skip


@contextmanager
def gateway(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace serve`, until the end."""
    with (file.parent / "process.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(file)],
            cwd=file.parent, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def memory(process: subprocess.Popen[bytes]) -> float:
    """MiB of a process and its descendants."""
    parent = psutil.Process(process.pid)
    return float(sum(each.memory_full_info().pss for each in (parent, *parent.children(recursive=True))) / MIB)


def connections(database: str) -> int | None:
    """Those of gateways to Postgres; None for SQLite."""
    if not database.startswith("postgres"):
        return None
    import psycopg

    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headrace'"
    with psycopg.connect(database) as connection:
        row = connection.execute(count).fetchone()
    return 0 if row is None else int(row[0])


async def until_ready(http: aiohttp.ClientSession, file: dict[str, Any], workers: int) -> None:
    """Wait until all workers accept requests."""
    url = f"http://{file['listen']['admin']}"
    while True:
        try:
            async with http.get(f"{url}/admin/state") as response:
                state = await response.json()
            if workers == 1 or [each["state"] for each in state["workers"]] == ["ready"] * workers:
                return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)


def key_of(file: Path) -> str:
    """A new key of the file's tenant."""
    command = [sys.executable, "-m", "gateway", "keys", "create", "--tenant", "acme", "--config", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=file.parent, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


async def measure(database: str, workers: int, requests: int, streams: int, folder: Path) -> Figures:
    """Start a gateway with its files in `folder`, load it, open streams."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    upstream = "http://{}:{}".format(*runner.addresses[0][:2])
    (folder / "pepper").write_text("0123456789abcdef" * 4)
    file = folder / "headrace.yaml"
    written = settings(database or f"sqlite:///{folder}/state.db", upstream, workers, folder)
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    headers = {"authorization": f"Bearer {await asyncio.to_thread(key_of, file)}"}
    client = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers=headers, timeout=aiohttp.ClientTimeout()
    )
    with gateway(file) as process:
        async with client as http:
            await until_ready(http, written, workers)
            await asyncio.sleep(SETTLE_S)
            idle = memory(process)
            url = f"http://{written['listen']['http']}/v1/chat/completions"
            await send_chats(http, url, requests)
            await asyncio.sleep(SETTLE_S)
            loaded, used = memory(process), connections(database)
            opened = [await stream(http, url) for _ in range(streams)]
            await asyncio.sleep(1)
            per_stream = (memory(process) - loaded) * 1024 / max(streams, 1)
            for each in opened:
                each.close()
    await runner.cleanup()
    return Figures(workers, idle, loaded, per_stream, used)


async def send_chats(http: aiohttp.ClientSession, url: str, requests: int) -> None:
    """Chats, 16 at a time."""
    left = iter(range(requests))

    async def client() -> None:
        for _ in left:
            async with http.post(url, json=BODY) as response:
                if response.status != 200:
                    raise SystemExit(f"the gateway answered {response.status}: {await response.text()}")
                await response.read()

    await asyncio.gather(*(client() for _ in range(16)))


async def stream(http: aiohttp.ClientSession, url: str) -> aiohttp.ClientResponse:
    """A stream that has begun."""
    response = await http.post(url, json={**BODY, "stream": True})
    await response.content.readany()
    return response


class Sizes(NamedTuple):
    """Bytes of one row with its indices."""

    key: float
    usage: float
    request: float


def sizes(database: str, folder: Path, file: Path, count: int) -> Sizes:
    """Write so many rows of each kind through the gateway's own stores. `file`: of a gateway of this database."""
    url, pepper = database or f"sqlite:///{folder}/sizes.db", load_pepper(load(file))

    def size() -> int:
        if not database:
            with closing(sqlite3.connect(folder / "sizes.db")) as connection:  # what waits in the log counts too
                pages, page = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
                )
            return int(pages * page)
        import psycopg

        with psycopg.connect(database) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return 0 if row is None else int(row[0])

    def grown(fill: Callable[[], None]) -> float:
        before = size()
        fill()
        return (size() - before) / count

    with closing(KeyStore(url, pepper)) as keys, closing(UsageStore(url, pepper)) as usage:
        actor, now = Actor("bench"), int(time.time()) // HOUR

        def create() -> None:
            for number in range(count):
                keys.create(f"tenant-{number}", "an application", by=actor, now=time.time())

        def use() -> None:
            with usage._database.change(moves_epoch=False) as connection:
                for slot in range(count):
                    labels = UsageLabels(f"tenant-{slot % 100}", f"key{slot:010}", f"model-{slot % 12}", "", "usd")
                    write_hours(
                        connection, [hour_values("bench", now, UsageRow(slot, labels, (123_456,) * len(COUNTERS)))]
                    )

        per_key, per_usage = grown(create), grown(use)
    with closing(RequestStore(open_days(url, folder / "requests"))) as store:
        fill(store, 10 * count, 2)
        per_request = sum(store.days.sizes().values()) / (10 * count)
    return Sizes(per_key, per_usage, per_request)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_sizing", description=__doc__)
    parser.add_argument("--database", default="", help="postgresql://…; SQLite in a folder of its own without it")
    parser.add_argument("--workers", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--requests", type=int, default=5000, help="chats before the second reading (5000)")
    parser.add_argument("--streams", type=int, default=500, help="streams that are open at a time (500)")
    parser.add_argument(
        "--rows", type=int, default=2000, help="keys and rows of usage; ten times as many requests (2000)"
    )
    options = parser.parse_args(argv)
    figures = []
    print(f"{'workers':>8} {'idle MiB':>9} {'used MiB':>9} {'KiB a stream':>13} {'connections':>12}")
    with tempfile.TemporaryDirectory(prefix="headrace-sizing-") as name:
        for workers in options.workers:
            folder = Path(name) / str(workers)
            folder.mkdir()
            one = asyncio.run(measure(options.database, workers, options.requests, options.streams, folder))
            figures.append(one)
            memory_of_it = f"{one.idle_mib:9.0f} {one.loaded_mib:9.0f} {one.per_stream_kib:13.1f}"
            print(f"{one.workers:8} {memory_of_it} {one.connections!s:>12}")
        rows = sizes(options.database, Path(name), folder / "headrace.yaml", options.rows)
    print(f"bytes of a key {rows.key:.0f}, of a row of usage {rows.usage:.0f}, of a stored request {rows.request:.0f}")
    print(json.dumps({"gateways": [each._asdict() for each in figures], "bytes": rows._asdict()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
