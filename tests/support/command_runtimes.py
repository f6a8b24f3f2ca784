"""Gateways that start a small server of chats by a command, as a runtime of their pool."""

import asyncio
import sys
from typing import Any

import psutil

from tests.support import mortal_server
from tests.support.processes import GatewayProcess

MORTAL = [sys.executable, "-S", mortal_server.__file__]


def mortal(**fields: Any) -> dict[str, Any]:
    """A runtime whose server is the mortal one."""
    return {"kind": "command", "command": [*MORTAL, "{port}"], "ready": "/health", **fields}


def configuration(runtime: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": "theirs", "runtime": runtime}],
        "models": [{"name": "chat", "routes": [{"to": "theirs"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **more,
    }


def rewrite(g: GatewayProcess, runtime: dict[str, Any]) -> None:
    """Change the runtime in the file."""
    g.rewrite(pools=[{"name": "theirs", "runtime": runtime}])


async def answered(g: GatewayProcess, key: str) -> dict[str, Any]:
    """The first answer; a server that starts, or was killed a moment ago, may take a while."""
    async with asyncio.timeout(300):
        while (reply := await g.chat(key))[0] != 200:
            await asyncio.sleep(0.1)
    return reply[1]


def below(pid: int) -> list[psutil.Process]:
    """The processes below one, without those that have ended."""
    processes = psutil.Process(pid).children(recursive=True)
    return [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]


def servers(g: GatewayProcess) -> int:
    """How many mortal servers run; a process may end while it is read."""
    count = 0
    for process in psutil.Process(g.process.pid).children(recursive=True):
        try:
            count += process.cmdline()[2:3] == [MORTAL[2]]
        except psutil.Error:
            continue
    return count


def pool(state: dict[str, Any]) -> dict[str, Any]:
    """The replicas of the only pool."""
    [described] = state["replicas"]
    return dict(described)
