"""Real workers under a supervisor in this process, whose patience is short."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from config.loader import load
from gateway.errors import StartError
from gateway.process.supervisor import process, workers
from gateway.process.supervisor.supervisor import Supervisor
from tests.support.traffic import traffic
from tests.support.waiting import until

pytestmark = pytest.mark.processes


def supervisor(folder: Path, workers: int = 2) -> Supervisor:
    path = folder / "headrace.yaml"
    written = {
        "version": 1,
        "workers": workers,
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "state": {"database": f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
        "pools": [{"name": "up", "endpoints": ["http://127.0.0.1:9"], "probe": None}],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    path.write_text(yaml.safe_dump(written))
    return Supervisor(path, load(path))


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Supervisor]:
    made = supervisor(folder)
    try:
        await made.start()
        yield made
    finally:
        await made.aclose()


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_BACKOFF", 0.05)


async def test_workers_that_die_at_once_fail_the_start_with_their_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    made = supervisor(tmp_path)
    with pytest.raises(StartError, match="no worker process starts: worker 0 ended with status 1, worker 1 ended"):
        await made.start()
    await made.aclose()


async def test_a_missing_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    made = supervisor(tmp_path)
    with pytest.raises(StartError, match="cannot start: No such file"):
        await made.start()
    await made.aclose()


async def test_a_worker_that_is_stuck_is_killed_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "UNRESPONSIVE_SECONDS", 2.0)
    monkeypatch.setattr(process, "CHECK_SECONDS", 0.1)
    async with running(tmp_path) as made:
        stuck = made.workers.ready[0].pid
        assert stuck is not None
        os.kill(stuck, signal.SIGSTOP)
        await until(lambda: len(made.workers.ready) == 2 and made.workers.ready[0].pid != stuck)
        assert made.workers.slots[0].last_end == "was killed by signal 9"


async def test_clients_of_a_stopped_worker_are_answered_when_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "UNRESPONSIVE_SECONDS", 2.0)
    monkeypatch.setattr(process, "CHECK_SECONDS", 0.1)
    async with running(tmp_path) as made:
        stopped = made.workers.ready[0].pid
        assert stopped is not None
        async with traffic(f"http://127.0.0.1:{made.http_address[1]}", "no key", clients=10, renew=1) as load:
            await load.until_answered(100)
            os.kill(stopped, signal.SIGSTOP)
            await until(lambda: made.workers.slots[0].last_end)
            await load.until_answered(200)
        assert len(load.dropped) <= 10  # those that the worker had accepted
        assert (load.refused, set(load.statuses)) == (0, {401})
        assert load.answered + len(load.dropped) == load.sent


async def test_a_worker_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as made:
        before = [worker.pid for worker in made.workers.ready]
        monkeypatch.setattr(sys, "executable", "/bin/false")
        assert made.restart()
        assert not made.restart()
        await until(lambda: made.lifecycle.last_error)
        assert "worker 0: ended with status 1" in made.lifecycle.last_error
        assert [worker.pid for worker in made.workers.ready] == before
        sockets = [name for name in os.listdir(made._folder.name) if name.endswith(".sock")]
        assert len(sockets) == 2  # one socket each, and none of the failed worker


async def test_a_crash_loop_pauses_longer_each_time_and_is_over_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as made:
        right, victim = sys.executable, made.workers.ready[0]
        assert victim.pid is not None
        monkeypatch.setattr(sys, "executable", "/bin/false")
        begun = asyncio.get_running_loop().time()
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: made.workers.slots[0].restarts >= 4)
        assert asyncio.get_running_loop().time() - begun > 0.05 + 0.1 + 0.2 + 0.4
        assert [worker.slot for worker in made.workers.ready] == [1]
        monkeypatch.setattr(sys, "executable", right)
        await until(lambda: len(made.workers.ready) == 2)


async def test_while_a_worker_is_away_others_take_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as made:
        victim = made.workers.ready[0]
        assert victim.pid is not None
        monkeypatch.setattr(sys, "executable", "/bin/false")
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: made.workers.slots[0].last_end)
        async with traffic(f"http://127.0.0.1:{made.http_address[1]}", "no key", clients=10, renew=1) as load:
            await load.until_answered(200)  # half of them arrive at the socket of the absent worker
        assert [worker.slot for worker in made.workers.ready] == [1]
        assert (load.dropped, load.refused, load.statuses) == ([], 0, {401: load.sent})


async def test_a_limit_slot_is_reused_after_its_worker_and_no_worker_starts_without(tmp_path: Path) -> None:
    async with running(tmp_path) as made:
        limit_slots = made._limit_slots
        limit_slots._free = {limit_slots._free.pop()}
        for _ in range(3):
            async with made.workers.lock:
                await made.workers.replace(made.workers.slots[:1], made.workers.settings)
            await until(lambda: limit_slots._free)
        limit_slots._free.clear()
        before = [worker.pid for worker in made.workers.ready]
        async with made.workers.lock:
            with pytest.raises(process.WorkerLost, match="too many other workers are still draining"):
                await made.workers.replace(made.workers.slots[:1], made.workers.settings)
        assert [worker.pid for worker in made.workers.ready] == before


async def test_clients_are_answered_while_no_worker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STAND_IN_AFTER", 0.0)
    async with running(tmp_path) as made, aiohttp.ClientSession() as http:
        host, port = made.http_address

        async def code() -> str:
            async with http.post(f"http://{host}:{port}/v1/chat/completions", json={}) as response:
                body = await response.json()
                return f"{response.status} {body['error']['code']}"

        assert await code() == "401 missing_api_key"
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/bin/false")
            for worker in made.workers.ready:
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGKILL)
            await until(lambda: not made.workers.ready)
            await until(lambda: all(slot.restarts for slot in made.workers.slots))
            assert [await code() for _ in range(5)] == ["503 no_worker"] * 5
        await until(lambda: len(made.workers.ready) == 2)
        assert {await code() for _ in range(5)} == {"401 missing_api_key"}
