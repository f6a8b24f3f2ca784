"""A real gateway process, as an operator would run it."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from gateway.auth.audit import Actor
from gateway.auth.terminal import open_store, settings_of
from tests.support.forked import ForkedProcess

HEADRACE = [sys.executable, "-m", "gateway"]
FORKED = os.environ.get("HEADRACE_FORKED_STARTS", "1") != "0"
"""Whether a gateway is a fork of a process that has imported it (`forked.py`). `make test-all` starts all anew."""


_IMPORTS = os.environ.get("PYTHONPATH")


def may_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork has the same packages as a new process: it has imported its own already."""
    return environment.get("PYTHONPATH") == _IMPORTS


class GatewayProcess:
    """`headrace serve`, its addresses as it printed them, and its admin door."""

    def __init__(self, process: asyncio.subprocess.Process | ForkedProcess, config: Path) -> None:
        self.process = process
        self.config = config
        self.output = ""
        self.url = ""
        self.grpc = ""
        """`HOST:PORT`; empty where it does not listen for gRPC."""
        self.picker = ""
        """`HOST:PORT` of its endpoint picker; empty without one."""
        self.admin = ""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.output += line.decode()

    async def printed(self, pattern: str, seconds: float = 300.0) -> re.Match[str]:
        """Wait until its output holds a match."""
        end = asyncio.get_running_loop().time() + seconds
        while (match := re.search(pattern, self.output)) is None:
            if self._reader.done() or asyncio.get_running_loop().time() > end:
                raise AssertionError(f"the gateway did not print {pattern!r}:\n{self.output}")
            await asyncio.sleep(0.02)
        return match

    async def listens(self) -> None:
        """Wait until it does, and note its addresses."""
        listening = await self.printed(
            r"listens on (http\S+) \((?:gRPC: (\S+), )?(?:endpoint picker: (\S+), )?admin: (http[^)]+)\)"
        )
        self.url, self.admin = listening[1], listening[4]
        self.grpc, self.picker = listening[2] or "", listening[3] or ""

    async def state(self) -> dict[str, Any]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.admin}/admin/state") as response:
            return dict(await response.json())

    async def until(self, condition: str, seconds: float = 300.0) -> dict[str, Any]:
        """Wait until an expression over the admin state (`s`) holds; the state then."""
        async with asyncio.timeout(seconds):
            while True:
                s = await self.state()
                if eval(condition, {"s": s}):
                    return s
                await asyncio.sleep(0.05)

    async def key(self, tenant: str = "acme") -> str:
        """A new key, once every worker accepts it: each try has a connection, and so by chance a worker, of its own."""
        key = await issue(self, tenant)
        in_a_row = 1 if yaml.safe_load(self.config.read_text()).get("workers", 1) == 1 else 40
        accepted = 0
        async with asyncio.timeout(300):
            while accepted < in_a_row:
                if await self._accepts(key):
                    accepted += 1
                else:
                    accepted = 0
                    await asyncio.sleep(0.02)
        return key

    async def until_refused(self, key: str) -> None:
        """Wait until a revoked key is refused, without a call of a model."""
        async with asyncio.timeout(300):
            while await self._accepts(key):
                await asyncio.sleep(0.02)

    async def _accepts(self, key: str) -> bool:
        headers = {"authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/v1/models", headers=headers) as response:
            return response.status == 200

    async def demo_key(self) -> str:
        """The demo key that it has printed."""
        return str((await self.printed(r"Demo key [^:]*: (hr-\S+)"))[1])

    async def chat(self, key: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """The status and the body of a chat's response, over a connection of its own."""
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}
        headers = {"authorization": f"Bearer {key}"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            return response.status, await response.json()

    async def until_status(self, key: str, status: int, **fields: Any) -> None:
        """Repeat a chat until its response has that status."""
        async with asyncio.timeout(300):
            while (await self.chat(key, **fields))[0] != status:
                await asyncio.sleep(0.02)

    async def administer(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the body of the admin listener's response."""
        data = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, f"{self.admin}{path}", data=data, headers=headers) as response,
        ):
            return response.status, await response.json()

    async def metrics(self) -> str:
        """The page of its metrics."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.admin}/metrics") as response:
            return await response.text()

    def rewrite(self, **sections: Any) -> None:
        """Replace sections of its file."""
        written = yaml.safe_load(self.config.read_text())
        self.config.write_text(yaml.safe_dump({**written, **sections}, sort_keys=False))

    async def until_ready(self, workers: int) -> dict[str, Any]:
        """Wait until so many workers serve and no worker is draining."""
        return await self.until(f"[w['state'] for w in s['workers']] == ['ready'] * {workers}")

    async def until_idle(self) -> dict[str, Any]:
        """Wait until every counter reads zero."""
        return await self.until(
            "s['in_flight'] == 0 and all(e['in_flight'] == 0 for e in s['endpoints'])"
            " and all(t['in_flight'] == 0 and t['reserved_tokens'] == 0 for t in s['tenants'])"
        )

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(300):
            status = await self.process.wait()
        await self._reader
        return status


def minimal(url: str, **changes: Any) -> dict[str, Any]:
    """A configuration: the pool `up` at that address, the model `chat`, the tenant `acme`."""
    return {
        "pools": [{"name": "up", "endpoints": [url], "probe": {"interval": "100ms"}}],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **changes,
    }


@asynccontextmanager
async def gateway(
    folder: Path, configuration: dict[str, Any], *, env: dict[str, str] | None = None, forked: bool = FORKED
) -> AsyncIterator[GatewayProcess]:
    """Start one on free ports, wait until it listens, and stop it at the end."""
    async with starting_gateway(folder, configuration, env=env, forked=forked) as made:
        await made.listens()
        yield made


@asynccontextmanager
async def starting_gateway(
    folder: Path,
    configuration: dict[str, Any],
    *,
    env: dict[str, str] | None = None,
    behind: Sequence[str] = (),
    forked: bool = False,
) -> AsyncIterator[GatewayProcess]:
    """Start one on free ports, wait for nothing, and stop it at the end. No process of it may end by a bug.

    `behind` is a command that becomes the gateway, whose command line follows it. `forked`: not a new interpreter.
    """
    path = folder / "headrace.yaml"
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    base = {
        "version": 1,
        "listen": listen,
        "state": {"database": f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
    }
    path.write_text(yaml.safe_dump({**base, **configuration}, sort_keys=False))
    arguments, environment = ("serve", "--config", str(path)), {**os.environ, **(env or {})}
    process: asyncio.subprocess.Process | ForkedProcess
    if forked and may_fork(environment):
        has_workers = configuration.get("workers", 1) != 1
        process = await ForkedProcess.start(*arguments, env=environment, orders_workers=has_workers)
    else:
        process = await asyncio.create_subprocess_exec(
            *behind, *HEADRACE, *arguments, stderr=asyncio.subprocess.PIPE, env=environment
        )
    made = GatewayProcess(process, path)
    try:
        yield made
    finally:
        if process.returncode is None:
            await made.stop()
        await made._reader
    assert "Fatal Python error" not in made.output, made.output


async def issue(g: GatewayProcess, tenant: str = "acme") -> str:
    """A new key. `headrace keys create` would need a second of CPU time to start; its own tests run it."""
    return await asyncio.to_thread(_issue, g.config, tenant)


def _issue(path: Path, tenant: str) -> str:
    with closing(open_store(settings_of(path))) as store:
        return store.create(tenant, "", by=Actor("tests"), now=time.time()).plaintext


async def command(*arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Run `headrace ARGUMENTS`: exit status, stdout, stderr."""
    if FORKED and may_fork(os.environ):
        forked = await ForkedProcess.start(*arguments, env=os.environ, cwd=cwd, stdout=True)
        out, err = await forked.communicate()
        return await forked.wait(), out.decode(), err.decode()
    process = await asyncio.create_subprocess_exec(
        *HEADRACE, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=cwd
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
