"""A gateway over one pool of a file, which a replay sends its requests to.

It has every front door, the pool as the file has it, and neither limits, caches, retries nor records. Its listener is
on loopback, and its only key exists in this process.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from adapters.process import TemporaryFolder
from config.schema.config import ClientModelConfig, Config, PoolConfig
from gateway.process.data_plane import DataPlane

POLL_SECONDS = 0.05
WAIT_SECONDS = 30.0
"""Seconds for a first healthy endpoint; a runtime has its `start_timeout`."""


class PoolGateway(NamedTuple):
    """The address and the key of the gateway."""

    url: str
    key: str


@asynccontextmanager
async def pool_gateway(file: Config, pool: str, seconds: float) -> AsyncIterator[PoolGateway]:
    """Serve the pool of a file. `seconds` bounds each request. Raises `ValueError` and `StartError`."""
    folder = TemporaryFolder()
    try:
        plane = DataPlane(over_pool(file, pool, seconds, folder.name))
        try:
            await plane.open()
            await plane.listeners.listen_tcp(plane.config.listen)
            await _ready(plane, pool)
            assert plane.demo is not None
            host, port = plane.listeners.http_address
            yield PoolGateway(f"http://{host}:{port}", plane.demo.plaintext)
        finally:
            await plane.aclose()
    finally:
        await asyncio.to_thread(folder.cleanup)


def pool_of(file: Config, name: str) -> PoolConfig:
    """A pool of a file. Raises `ValueError`."""
    for pool in file.pools:
        if pool.name == name:
            return pool
    names = ", ".join(pool.name for pool in file.pools)
    raise ValueError(f"--against {name}: the file has no such pool. It has {names}")


def over_pool(file: Config, pool: str, seconds: float, folder: str) -> Config:
    """The configuration with this pool only: every model of the file, and every other name, leads to it. Raises
    `ValueError`."""
    chosen = pool_of(file, pool)
    most = f"{seconds}s"
    timeout = {"first_byte": most, "idle": most, "total": most}
    route = {"to": pool, "retry": {"attempts": 1}, "timeout": timeout}
    named = {model.name: (model.aliases, model.versions) for model in file.models} | {"*": ((), ())}
    models = tuple(
        ClientModelConfig.model_validate({"name": name, "aliases": aliases, "versions": versions, "routes": [route]})
        for name, (aliases, versions) in named.items()
    )
    own = Config.model_validate(
        {
            "version": 1,
            "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
            "state": {"database": f"sqlite:///{folder}/state.db"},
            "auth": {"demo_key": True},
            "access_log": {"to": os.devnull},
            "pools": [{"name": "placeholder", "endpoints": ["http://127.0.0.1:9"]}],
            "models": [{"name": "*", "routes": [{"to": "placeholder"}]}],
            "tenants": [{"name": "replay", "models": ["*"]}],
        }
    )
    return own.model_copy(update={"pools": (chosen,), "models": models, "zone": file.zone, "http": file.http})


async def _ready(plane: DataPlane, pool: str) -> None:
    """Wait until an endpoint is healthy. Raises `ValueError`."""
    config = plane.config.pools[0]
    seconds = WAIT_SECONDS if config.runtime is None else config.runtime.start_timeout
    try:
        async with asyncio.timeout(seconds):
            while all(endpoint.health != "healthy" for _, endpoint in plane.fleet.endpoints()):
                if config.probe is None and config.runtime is None:
                    return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        reasons = {endpoint.probe_error for _, endpoint in plane.fleet.endpoints() if endpoint.probe_error}
        why = f": {'; '.join(sorted(reasons))}" if reasons else ""
        raise ValueError(f"--against {pool}: no endpoint is healthy after {seconds:g} s{why}") from None
