"""`--tensor-parallel` as a process of its own: it answers, it drains, and it ends when one of its processes dies."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil
import pytest

pytestmark = pytest.mark.processes
CHAT: dict[str, Any] = {
    "model": "smol", "messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0,
}  # fmt: skip


class _Served(NamedTuple):
    process: subprocess.Popen[bytes]
    socket: Path
    log: Path
    temporary: Path
    """Where its temporary folders are."""

    def http(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession("http://llm", connector=aiohttp.UnixConnector(str(self.socket)))

    @property
    def ranks(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "runtimes.llm.engine.ranks.process" in child.cmdline()]

    async def until_healthy(self) -> None:
        async with asyncio.timeout(300), self.http() as session:
            while self.process.poll() is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get("/health") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.05)
        raise AssertionError(self.log.read_text())


@pytest.fixture
def served(bundled_model: Path, tmp_path: Path) -> Iterator[_Served]:
    socket, log, temporary = tmp_path / "llm.sock", tmp_path / "log", tmp_path / "temporary"
    temporary.mkdir()
    options = ["--kv-cache", "64MiB", "--threads", "1", "--dtype", "float32", "--max-model-len", "512"]
    command = [sys.executable, "-m", "runtimes.llm", "--model", str(bundled_model), "--served-name", "smol", *options]
    command += ["--tensor-parallel", "3", "--socket", str(socket)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=os.environ | {"TMPDIR": str(temporary)})
    try:
        yield _Served(process, socket, log, temporary)
    finally:
        process.kill()
        process.wait()


async def test_three_processes_answer_and_drain(served: _Served) -> None:
    await served.until_healthy()
    ranks = served.ranks
    assert len(ranks) == 2
    async with served.http() as session, session.post("/v1/chat/completions", json=CHAT) as response:
        answer = await response.json()
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    # A terminal, or systemd, signals all processes: the others go on until the first has drained.
    for pid in (*(rank.pid for rank in ranks), served.process.pid):
        os.kill(pid, signal.SIGTERM)
    assert await asyncio.to_thread(served.process.wait, 300) == 0
    assert not any(rank.is_running() for rank in ranks)
    assert re.search(r"idle: all \d+ pages of the KV cache are free or cached", served.log.read_text())


async def test_the_death_of_a_process_is_an_error_of_every_request(served: _Served) -> None:
    await served.until_healthy()
    ranks = served.ranks
    long = CHAT | {"max_tokens": 400, "stream": True, "ignore_eos": True}
    async with served.http() as session, session.post("/v1/chat/completions", json=long) as stream:
        assert stream.status == 200
        await stream.content.readline()
        whole = asyncio.ensure_future(session.post("/v1/chat/completions", json=long | {"stream": False}))
        async with session.get("/metrics") as metrics:
            assert metrics.status == 200
        os.kill(ranks[0].pid, signal.SIGKILL)
        events = [json.loads(line[6:]) async for line in stream.content if line.startswith(b"data: {")]
        assert "rank 1 ended (signal 9)" in events[-1]["error"]["message"]
        response = await whole
        assert response.status >= 500
        assert "rank 1 ended (signal 9)" in (await response.json())["error"]["message"]
    assert await asyncio.to_thread(served.process.wait, 300) == 1
    assert not any(rank.is_running() for rank in ranks)


async def test_sigterm_while_it_loads_leaves_nothing(served: _Served) -> None:
    async with asyncio.timeout(300):
        while len(ranks := served.ranks) < 2:
            await asyncio.sleep(0.01)
    assert any(served.temporary.glob("headrace-*"))
    served.process.terminate()
    assert await asyncio.to_thread(served.process.wait, 300) == 0
    gone, alive = await asyncio.to_thread(psutil.wait_procs, ranks, 60)
    assert (len(gone), alive) == (2, [])
    assert not list(served.temporary.glob("headrace-*"))


async def test_the_others_end_when_the_first_process_is_killed(served: _Served) -> None:
    await served.until_healthy()
    ranks = served.ranks
    served.process.kill()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, ranks, 60)
    assert (len(gone), alive) == (2, [])


async def test_listeners_are_on_the_loopback_interface(served: _Served) -> None:
    await served.until_healthy()
    for process in (*served.ranks, psutil.Process(served.process.pid)):
        listening = [one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
        assert set(listening) <= {"127.0.0.1", "::1"}


def test_a_number_that_does_not_divide_the_heads_is_one_line_and_status_1(bundled_model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "runtimes.llm", "--model", str(bundled_model), "--socket", str(tmp_path / "s")]
    ended = subprocess.run([*command, "--tensor-parallel", "2"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    [last] = ended.stderr.splitlines()[-1:]
    assert "tensor_parallel is 2: 9 heads cannot be shared evenly; for this model it may be 1, 3" in last
    assert "Traceback" not in ended.stderr
