"""One endpoint with its connections, its probe, its metrics and its runtime."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from random import Random

import aiohttp

from adapters.base import Adapter
from adapters.call import Call
from adapters.detection.auto import AutoAdapter
from adapters.errors import InferenceError
from adapters.http1.client import Client
from adapters.registry import Address, Unmakeable
from adapters.registry import make as make_adapter
from adapters.requests import ModelQuery
from adapters.types import Deadline
from adapters.upstreams import tls
from adapters.upstreams.dial import credentials
from adapters.upstreams.oip.http_client import OipHttpAdapter
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.upstreams.tls import FileTimes
from config.runtimes.code import CodeRuntime
from config.schema.config import CommandRuntime, LlmRuntime, PoolConfig, ProbeConfig, ProgramRuntime, SignalsConfig
from gateway.discovery.target import DiscoveredEndpoint
from gateway.placement.launch import CannotLaunch
from gateway.placement.runtime import Runtime, Runtimes
from gateway.traffic import probes
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.signals import Scraper
from gateway.traffic.spans import provider_of
from policies.breaker import Breaker

# A runtime is probed often while it starts. One slow response of a busy machine does not make it unhealthy.
RUNTIME_PROBE = ProbeConfig(interval="250ms", timeout="5s", unhealthy_after=3)
STARTING_SECONDS = 0.5
"""Seconds between probes of an external server that is not ready yet; later the pool's interval applies."""


class FleetError(Exception):
    """A configuration that cannot be run. The message is one sentence for operators."""


@dataclass(slots=True, eq=False)
class PoolMember:
    """A running endpoint. `source` is everything that its connections depend on; other changes do not restart it."""

    pool: str
    source: object
    endpoint: Endpoint
    probe: ProbeConfig | None
    connect: Callable[[], Adapter]
    """Creates another adapter to the same server, with connections of its own."""
    runtime: Runtime | None = None
    origin: str = "configuration"
    """The source of the endpoint: the configuration, discovery or an operator."""
    drained: bool = False
    """Whether an operator drains it, so that it receives no new requests."""
    warm_until: float = 0.0
    """Loop time until which it stays warm after its pool is removed: a rollout can go back to it."""
    watcher: asyncio.Task[None] | None = None
    scraper: Scraper | None = None

    def watch(self, rng: Random) -> None:
        """Start its health checks."""
        if self.probe is not None:
            starting = STARTING_SECONDS if self.runtime is not None else None
            self.watcher = asyncio.create_task(probes.watch(self.endpoint, self.probe, rng, starting))

    def scrape(self, config: SignalsConfig | None, pool: PoolConfig, rng: Random) -> None:
        """Read its metrics as configured; None stops reading."""
        if (self.scraper.config if self.scraper else None) == config:
            return
        if self.scraper is not None:
            self.scraper.stop()
        self.scraper = None
        if config is not None:
            self.scraper = Scraper(self.endpoint, config, partial(_session, pool, self.endpoint.address), rng)
            self.scraper.start()

    async def stop(self) -> None:
        """Stop its tasks, close its connections and end its runtime."""
        if self.watcher is not None:
            self.watcher.cancel()
        if self.scraper is not None:
            self.scraper.stop()
        await self.endpoint.adapter.aclose()
        if self.runtime is not None:
            await self.runtime.stop()


def endpoint_id(secret: bytes, pool: str, url: str) -> str:
    """The id that clients see. The `secret` prevents clients from guessing the address; the deployment's own secret
    gives the same id in each process and after every restart."""
    return f"{pool}/{blake2b(url.encode(), digest_size=5, key=secret).hexdigest()}"


def source_of(pool: PoolConfig, target: DiscoveredEndpoint | None, times: FileTimes) -> object:
    """Everything that the connections of a pool's endpoint depend on. Without a target, of its runtime."""
    if target is None:
        spoken = (pool.protocol, pool.model, pool.key, pool.key_header, pool.probe, pool.connect_timeout)
        return (pool.runtime, pool.max_connections, spoken)
    return (
        target.url, target.server_name, pool.protocol, pool.model, pool.key, pool.key_header, pool.tls, times,
        pool.probe, pool.connect_timeout, pool.max_connections,
    )  # fmt: skip


def make(pool: PoolConfig, id_: str, target: DiscoveredEndpoint, source: object) -> PoolMember:
    """Create an endpoint of the pool. Raises `FleetError`."""
    try:
        checked = tls_of(pool, pool.protocol.name) if target.url.startswith("https://") else None
        connect = partial(make_adapter, pool, Address(target.url, target.server_name, checked))
        adapter = connect()
    except Unmakeable as error:
        raise FleetError(f"pool {pool.name}: {error}") from None
    breaker = Breaker(pool.breaker.failures, pool.breaker.open_for)
    endpoint = Endpoint(id_, adapter, breaker, address=target.url)
    endpoint.provider = provider_of(pool)
    if isinstance(adapter, AutoAdapter):
        endpoint.probed("Its protocol is not detected yet.", healthy_after=1, unhealthy_after=1)
    return PoolMember(pool.name, source, endpoint, pool.probe, connect)


def make_runtime(pool: PoolConfig, id_: str, source: object, runtimes: Runtimes) -> PoolMember:
    """Create the pool's runtime, with its server. Raises `FleetError`."""
    assert pool.runtime is not None

    def gone(reason: str) -> None:
        endpoint.probed(f"The runtime {reason}.", healthy_after=1, unhealthy_after=1)

    try:
        runtime = runtimes.make(pool.name, pool.runtime, gone)
        connect = partial(_runtime_adapter, pool, runtime.address)
        adapter = connect()
    except (CannotLaunch, Unmakeable) as error:
        raise FleetError(f"pool {pool.name}: runtime: {error}") from None
    breaker = Breaker(pool.breaker.failures, pool.breaker.open_for)
    endpoint = Endpoint(id_, adapter, breaker)
    endpoint.provider = provider_of(pool)
    endpoint.runtime = "" if isinstance(pool.runtime, ProgramRuntime) else runtime.address
    endpoint.probed("The runtime is starting.", healthy_after=1, unhealthy_after=1)
    runtime.start()
    probe = pool.probe if isinstance(pool.runtime, ProgramRuntime) else RUNTIME_PROBE
    return PoolMember(pool.name, source, endpoint, probe, connect, runtime)


async def check_functions(member: PoolMember) -> None:
    """Query whether each function of a runtime of Python files is loaded. Raises `FleetError` with the reason if not.

    Other runtimes serve the models that they could load.
    """
    assert member.runtime is not None
    config = member.runtime.config
    for function in config.functions if isinstance(config, CodeRuntime) else ():
        at = asyncio.get_running_loop().time() + RUNTIME_PROBE.timeout
        call = Call(Deadline(at, RUNTIME_PROBE.timeout, RUNTIME_PROBE.timeout), "functions")
        try:
            await member.endpoint.adapter.call(ModelQuery(model=function.receiver, about="ready"), call)
        except InferenceError as error:
            assert function.file is not None
            raise FleetError(f"{function.file.path}: {error.message}") from None


def _runtime_adapter(pool: PoolConfig, address: str) -> Adapter:
    """The adapter to the pool's runtime. Raises `Unmakeable`."""
    if isinstance(pool.runtime, ProgramRuntime):
        ready = pool.runtime.ready if isinstance(pool.runtime, CommandRuntime) else None
        probe = pool.probe.model_copy(update={"path": ready}) if pool.probe is not None else None
        return make_adapter(pool.model_copy(update={"probe": probe}), Address(address))
    client = Client(address, max_connections=pool.max_connections + 1)
    if pool.takes_tensors:
        return OipHttpAdapter(client, model=pool.model_name)
    shared = isinstance(pool.runtime, LlmRuntime) and pool.runtime.share_prefixes
    return OpenAIAdapter(client, model=pool.model_name, ours=True, share_prefixes=shared)


def tls_of(pool: PoolConfig, spoken: str) -> ssl.SSLContext:
    """The TLS context of the pool's `https://` endpoints. Raises `FleetError`."""
    try:
        return tls.context(pool, spoken)
    except (OSError, ssl.SSLError) as error:
        raise FleetError(f"pool {pool.name}: tls: {error}") from None


def _session(pool: PoolConfig, address: str, timeout: float) -> aiohttp.ClientSession:
    """A session for an endpoint's metrics, with the TLS settings and the credentials of its requests."""
    connector: aiohttp.BaseConnector
    if address.startswith("unix:"):
        connector = aiohttp.UnixConnector(address.removeprefix("unix:"), limit=1)
    else:
        connector = aiohttp.TCPConnector(
            limit=1, ssl=tls_of(pool, "metrics") if address.startswith("https://") else True
        )
    headers = dict(credentials(pool, pool.protocol.metrics_key))
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(timeout), headers=headers)
