"""The tensor runtime under load while its processes are killed and its models hang. `HEADRACE_CHAOS_SECONDS=60` lasts
longer, `python -m loadtests.soaks.tensor` for twenty minutes and looks for leaks."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from loadtests.tensors.clients import Clients
from tests.servers.headrace import headrace
from tests.servers.repositories import MODELS
from tests.support.processes import gateway

SECONDS = float(os.environ.get("HEADRACE_CHAOS_SECONDS", "4"))
PATIENCE = 300.0
pytestmark = pytest.mark.timeout(SECONDS + 240)
BATCH = 8
ROWS = """\
backend: python
max_batch_size: 8
inputs:
  - {name: INPUT0, datatype: INT32, dims: [16]}
  - {name: INPUT1, datatype: INT32, dims: [16]}
outputs:
  - {name: OUTPUT0, datatype: INT32, dims: [16]}
  - {name: OUTPUT1, datatype: INT32, dims: [16]}
dynamic_batching: true
instances: [{count: 2, placement: process}]
"""
PID_FILE = """

import os
from pathlib import Path

here = Path(__file__)
(here.parents[2] / f"{here.parents[1].name}-{os.getpid()}.pid").touch()
"""
"""The end of a model's code: it writes the process that computes for the model beside the models."""


def repository(folder: Path) -> Path:
    """Two models that add and subtract."""
    for name in ("add_sub", "other"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text((MODELS / "add_sub" / "model.py").read_text() + PID_FILE)
        (folder / name / "model.yaml").write_text(ROWS)
    return folder


def lives(process: psutil.Process) -> bool:
    """Whether it still is the process of a model, and not another that was given its number."""
    with contextlib.suppress(psutil.Error):
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return bool(alive and "runtimes.tensor.instances.child" in process.cmdline())
    return False


def copies(folder: Path, model: str = "*") -> list[psutil.Process]:
    """The processes that compute, of one model or of all."""
    processes = []
    for file in folder.glob(f"{model}-*.pid"):
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(int(file.stem.rpartition("-")[2])))
    return [process for process in processes if lives(process)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def sending(clients: Clients, count: int = 12) -> AsyncIterator[Clients]:
    """Clients at work during the block."""
    ended = asyncio.Event()
    task = asyncio.create_task(clients.run(count, ended))
    try:
        await until(lambda: clients.seen.right > 50 or task.done())
        yield clients
    finally:
        ended.set()
        await task


async def right_again(clients: Clients) -> None:
    """Wait for a hundred right answers in a row."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as http:
        row = 0
        while row < 100:
            row = row + 1 if await clients.request(http) else 0


async def ended(processes: list[psutil.Process]) -> None:
    await until(lambda: not any(map(lives, processes)))


def descriptors(server: int) -> int:
    return psutil.Process(server).num_fds()


async def test_a_process_of_a_model_that_is_killed_again_and_again_costs_its_own_batches(tmp_path: Path) -> None:
    with headrace(repository(tmp_path)) as server:
        url, before = f"http://{server.http}", descriptors(server.pid)
        processes, kills = len(copies(tmp_path)), 0
        async with sending(Clients(url)) as clients, sending(Clients(url, "other")) as others:
            end = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.3)
                for victim in copies(tmp_path, "add_sub")[:1]:
                    victim.kill()
                    kills += 1
        await right_again(clients)
        print(f"{kills} kills, {clients.seen.right} right, {clients.seen.failed} failed")
        assert kills
        assert not clients.seen.wrong
        assert not clients.seen.broken
        assert clients.seen.failed <= kills * BATCH
        assert set(clients.seen.refused) <= {500, 503}
        assert (others.seen.failed, others.seen.wrong) == (0, [])
        await until(lambda: len(copies(tmp_path)) == processes)
        await until(lambda: descriptors(server.pid) <= before + 2)


def configuration(models: Path) -> dict[str, Any]:
    return {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(models)}}],
        "models": [{"name": "add_sub", "routes": [{"to": "models"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def test_a_killed_runtime_fails_its_requests_and_restarts(tmp_path: Path) -> None:
    models = repository(tmp_path / "models")
    async with gateway(tmp_path, configuration(models)) as g:
        clients = Clients(g.url, key=await g.key())
        async with sending(clients):
            for _ in range(2):
                before = (await g.state())["endpoints"][0]["pid"]
                orphans = copies(models)
                os.kill(before, signal.SIGKILL)
                await g.until(f"s['endpoints'][0]['pid'] not in (None, {before})")
                await ended(orphans)
                await right_again(clients)
        print(f"{clients.seen.right} right, {dict(clients.seen.refused)} refused")
        assert not clients.seen.wrong
        assert not clients.seen.broken
        assert set(clients.seen.refused) <= {502, 503, 504}
        assert clients.seen.slowest_s < PATIENCE
        await g.until_idle()
