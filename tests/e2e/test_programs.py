"""Servers of others that the gateway starts: by a command, and vLLM by a stand-in for its program."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.support import vllm_stand_in
from tests.support.command_runtimes import MORTAL, answered, below, configuration, mortal, rewrite
from tests.support.processes import command, gateway


def vllm(folder: Path, **more: Any) -> dict[str, Any]:
    """A runtime of that kind, whose environment has the stand-in."""
    program = folder / "venv/bin/vllm"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {vllm_stand_in.__name__} "$@"\n')
    program.chmod(0o755)
    return {"kind": "vllm", "model": "hf:org/model@main", "venv": str(folder / "venv"), **more}


async def gone(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 60)
    assert alive == []


async def test_a_command_s_server_is_started_watched_started_again_and_stopped(tmp_path: Path) -> None:
    runtime = mortal(env={"LEVEL": 3})
    async with gateway(tmp_path, configuration(runtime), env={"PROVIDER_KEY": "sk-1"}) as g:
        key = await g.demo_key()
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
        key = await g.demo_key()
        await answered(g, key)
        await g.printed(r"INFO runtime\.theirs serving org/model as theirs, at most 4096\n")
        everyone = below(g.process.pid)
        assert [process.name() for process in everyone].count("sleep") == 1
        await g.stop(signal.SIGKILL)
        await gone(everyone)


async def test_processes_of_a_server_do_not_outlive_the_killed_guard(tmp_path: Path) -> None:
    line = "sleep 1000 & exec " + " ".join(MORTAL)
    runtime = mortal(command=["/bin/sh", "-c", f"{line} $0", "{port}"])
    async with gateway(tmp_path, configuration(runtime)) as g:
        key = await g.demo_key()
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
        key = await g.demo_key()
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
        await g.printed(r"not reloaded[^\n]*pool theirs: runtime: vLLM is not installed in \S+none: run `pip")
        assert (await g.chat(key))[0] == 200


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_missing_program_prevents_the_start(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "headrace.yaml"
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    state = {"database": f"sqlite:///{tmp_path}/state.db"}
    runtime = {"kind": "command", "command": ["no-such-server", "{port}"]}
    path.write_text(yaml.safe_dump(configuration(runtime, version=1, listen=listen, state=state, workers=workers)))
    status, _, errors = await command("serve", "--config", str(path))
    assert status == 2
    assert "pool theirs: runtime: command: there is no program no-such-server in the PATH: install it" in errors
