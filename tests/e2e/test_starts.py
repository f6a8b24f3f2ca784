"""A gateway that is forked from a process with its modules equals one that a new interpreter runs."""

import asyncio
import os
import re
import signal
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.forked import ForkedProcess
from tests.support.processes import HEADRACE, gateway, minimal, starting_gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
INHERITED = ("SigBlk", "SigIgn", "SigCgt", "ShdPnd", "NoNewPrivs", "Uid", "Gid", "Umask", "Cpus_allowed", "CapEff")


def facts(pid: int) -> dict[str, Any]:
    """The kernel's view of a process, without numbers that differ in each."""
    folder = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
    fds = {int(fd.name): re.sub(r"[\[:].*|.*/|[\d#].*", "", os.readlink(fd)) for fd in (folder / "fd").iterdir()}
    return {
        **{name: status.get(name) for name in INHERITED},
        "limits": (folder / "limits").read_text(),
        "standard streams": [fds[number] for number in range(3)],
        "files": Counter(name for name in fds.values() if not name.startswith("state.db")),
        "folder": os.readlink(folder / "cwd"),
        "group": os.getpgid(pid),
        "session": os.getsid(pid),
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
    }


def facts_of_worker(pid: int) -> dict[str, Any]:
    """Each worker leads a session and a group of its own. uvloop leaves it copies of its standard streams."""
    files = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    kinds = Counter(re.sub(r"[\[:].*|.*/", "", name) for name in files if "state.db" not in name)
    return {**facts(pid), "files": kinds, "group": os.getpgid(pid) == pid, "session": os.getsid(pid) == pid}


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_kernel_sees_the_same_process(tmp_path: Path, workers: int) -> None:
    """Connections and files of the database come and go while both run: at some moment they are the same."""
    async with AsyncExitStack() as exits:
        pids = []
        for forked in (False, True):
            folder = tmp_path / str(forked)
            folder.mkdir()
            up = await exits.enter_async_context(upstream())
            written = minimal(up.url, workers=workers)
            g = await exits.enter_async_context(gateway(folder, written, forked=forked))
            await g.printed("Ready.")
            pids.append(g.process.pid if workers == 1 else (await g.state())["workers"][0]["pid"])
        end = time.monotonic() + 120
        read = facts if workers == 1 else facts_of_worker
        while True:
            with suppress(FileNotFoundError):  # a file was closed meanwhile
                new, forked_one = await asyncio.gather(*[asyncio.to_thread(read, pid) for pid in pids])
                if new == forked_one or time.monotonic() > end:
                    break
            await asyncio.sleep(0.1)
        assert new == forked_one


@pytest.mark.parametrize(
    ("numbers", "status"),
    [([signal.SIGTERM], 0), ([signal.SIGINT], 0), ([signal.SIGKILL], -9), ([signal.SIGSTOP, signal.SIGKILL], -9)],
)
async def test_its_end_is_the_same(numbers: list[signal.Signals], status: int, tmp_path: Path) -> None:
    outputs = []
    for forked in (False, True):
        folder = tmp_path / str(forked)
        folder.mkdir()
        async with upstream() as up, starting_gateway(folder, minimal(up.url), forked=forked) as g:
            await g.printed("Ready.")
            for number in numbers:
                g.process.send_signal(number)
            async with asyncio.timeout(300):
                assert await g.process.wait() == g.process.returncode == status
            await g._reader
            outputs.append(re.findall(r"(?:INFO|WARNING|ERROR) gateway\.serve .*|^(?!20).*Fatal.*", g.output))
            with pytest.raises(ProcessLookupError):
                g.process.send_signal(signal.SIGTERM)
    assert outputs[0] == outputs[1]


async def test_its_environment_and_folder_are_those_of_the_start(tmp_path: Path) -> None:
    pool = {"name": "a", "protocol": "openai", "endpoints": ["http://127.0.0.1:9"], "key": "${OF_THIS_START}"}
    model = {"name": "m", "routes": [{"to": "a"}]}
    written = {"version": 1, "pools": [pool], "models": [model], "tenants": [{"name": "acme", "models": ["m"]}]}
    (tmp_path / "relative.yaml").write_text(yaml.safe_dump(written))
    bare = {name: value for name, value in os.environ.items() if name != "OF_THIS_START"}
    ends = set()
    for env in (bare, bare | {"OF_THIS_START": "secret"}):
        arguments = ("check", "relative.yaml")
        process = await ForkedProcess.start(*arguments, env=env, cwd=tmp_path, stdout=True)
        forked = (*await process.communicate(), await process.wait())
        anew = await asyncio.create_subprocess_exec(
            *HEADRACE,
            *arguments,
            env={**env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert (*await anew.communicate(), anew.returncode) == forked
        ends.add(forked[2])
    assert ends == {0, 1}, "the file is valid only with the variable"
