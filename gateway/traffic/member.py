"""One endpoint together with what keeps it going: its connections, its probe, its runtime."""

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from adapters.http1.client import Client
from adapters.openai import OpenAIAdapter
from config.schema import PoolConfig, ProbeConfig, UpstreamTls
from gateway.placement.runtime import Runtime, Runtimes
from gateway.traffic import probes
from gateway.traffic.endpoint import Endpoint
from policies.breaker import Breaker

# A child of ours is asked often while it starts, and is not ill for one slow answer of a busy machine.
RUNTIME_PROBE = ProbeConfig(path="/health", interval="250ms", timeout="5s", unhealthy_after=3)


class FleetError(Exception):
    """A configuration that cannot be run: one sentence for ops."""


@dataclass(slots=True, eq=False)
class Member:
    """`source` is what its connections depend on: a change of anything else leaves it running."""

    pool: str
    source: object
    endpoint: Endpoint
    probe: ProbeConfig | None
    runtime: Runtime | None = None
    watcher: asyncio.Task[None] | None = None

    def watch(self, rng: Random) -> None:
        """Begin to check its health."""
        if self.probe is not None:
            self.watcher = asyncio.create_task(probes.watch(self.endpoint, self.probe, rng))

    async def stop(self) -> None:
        """End everything that belongs to it."""
        if self.watcher is not None:
            self.watcher.cancel()
        await self.endpoint.adapter.aclose()
        if self.runtime is not None:
            await self.runtime.stop()


def sources(pool: PoolConfig) -> Iterator[object]:
    """One for each endpoint of a pool, in order."""
    if pool.runtime is not None:
        yield (pool.runtime, pool.max_connections)
    for endpoint in pool.endpoints:
        yield (
            endpoint.url, pool.protocol, pool.model, pool.key, pool.tls, _file_times(pool.tls), pool.probe,
            pool.connect_timeout, pool.max_connections,
        )  # fmt: skip


def _file_times(tls: UpstreamTls | None) -> tuple[int, ...]:
    """A renewed certificate keeps its path."""
    paths = [path for path in (tls.ca, tls.cert, tls.key) if path] if tls is not None else []
    return tuple(Path(path).stat().st_mtime_ns if Path(path).exists() else 0 for path in paths)


def make(pool: PoolConfig, index: int, source: object, runtimes: Runtimes, id_: str) -> Member:
    """The pool's endpoint of that index. Raises `FleetError`."""
    breaker = Breaker(pool.breaker.failures, pool.breaker.open_for)
    if pool.runtime is not None:
        return _make_runtime(pool, id_, source, breaker, runtimes)
    url = pool.endpoints[index].url
    client = Client(
        url,
        tls=_tls(pool) if url.startswith("https://") else None,
        connect_timeout=pool.connect_timeout,
        # A server that is full is not ill: its health check has a connection of its own.
        max_connections=pool.max_connections + (pool.probe is not None),
    )
    adapter = OpenAIAdapter(
        client,
        model=pool.model,
        key=pool.key.get_secret_value() if pool.key else None,
        probe=pool.probe.path if pool.probe else "/health",
    )
    return Member(pool.name, source, Endpoint(id_, adapter, breaker, address=url), pool.probe)


def _make_runtime(pool: PoolConfig, id_: str, source: object, breaker: Breaker, runtimes: Runtimes) -> Member:
    assert pool.runtime is not None

    def gone(reason: str) -> None:
        endpoint.probed(f"The runtime {reason}.", healthy_after=1, unhealthy_after=1)

    runtime = runtimes.make(pool.name, pool.runtime, gone)
    client = Client(f"unix:{runtime.socket}", max_connections=pool.max_connections + 1)
    endpoint = Endpoint(id_, OpenAIAdapter(client, model=pool.name), breaker)
    endpoint.probed("The runtime is starting.", healthy_after=1, unhealthy_after=1)
    runtime.start()
    return Member(pool.name, source, endpoint, RUNTIME_PROBE, runtime)


def _tls(pool: PoolConfig) -> ssl.SSLContext:
    config = pool.tls or UpstreamTls()
    try:
        context = ssl.create_default_context(cafile=config.ca)
        if config.cert is not None:
            context.load_cert_chain(config.cert, config.key)
    except (OSError, ssl.SSLError) as error:
        raise FleetError(f"pool {pool.name}: tls: {error}") from None
    return context
