"""One endpoint with its connections, its probe, its metrics and its runtime."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from adapters.base import Adapter
from adapters.call import Call
from adapters.errors import CapacityError, InferenceError, ModelNotReady
from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.lasting import lasting
from adapters.registry import Address, Unmakeable
from adapters.registry import make as make_adapter
from adapters.requests import ModelQuery
from adapters.types import Deadline
from adapters.upstreams import dial
from adapters.upstreams.dial import FileTimes, credentials
from adapters.upstreams.scrubbing import scrubber
from adapters.wire.openai import chat as wire
from config.schema.config import (
    CommandRuntime,
    EndpointConfig,
    LlmRuntime,
    PoolConfig,
    ProbeConfig,
    ProgramRuntime,
    RuntimeConfig,
    SignalsConfig,
)
from config.schema.runtimes.bundled import CodeRuntime
from config.schema.runtimes.ray import PlacedRuntime
from gateway.traffic.discovery.target import DiscoveredEndpoint
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet.runtime import CannotLaunch, MovingRuntime, Place, Runtime, Runtimes, place_of
from gateway.traffic.spans import provider_of
from policies.breaker import Breaker

if TYPE_CHECKING:  # for pools with accounts, or whose metrics are read
    import aiohttp

    from gateway.traffic.accounts.account import ProviderAccount
    from gateway.traffic.fleet.signals import Scraper

log = logging.getLogger(__name__)
# A runtime is probed often while it starts. One slow response of a busy machine does not make it unhealthy.
RUNTIME_PROBE = ProbeConfig(interval="250ms", timeout="5s", unhealthy_after=3)
STARTING_SECONDS = 0.5
"""Seconds between probes of an external server that is not ready yet; later the pool's interval applies."""
WARM_UP_SECONDS = 120.0
"""The longest time for the first token of a replica."""


async def check(endpoint: Endpoint, config: ProbeConfig) -> None:
    """Probe once and record the result. A change of health is logged."""
    try:
        async with asyncio.timeout(config.timeout):
            await endpoint.adapter.probe(config.timeout)
            if config.ask is not None:
                await _request_token(endpoint, config.ask, config.timeout)
        error, endpoint.not_ready = "", None
    except InferenceError as failure:
        error = endpoint.scrubber.error(failure).message
        endpoint.not_ready = failure if isinstance(failure, ModelNotReady) else None
    except TimeoutError:
        error = "The health check timed out."
    except Exception as failure:  # no answer ends the loop
        error = f"The answer to the health check cannot be used ({type(failure).__name__})."
    if endpoint.probed(error, healthy_after=config.healthy_after, unhealthy_after=config.unhealthy_after):
        if error:
            log.warning("endpoint %s is %s: %s", endpoint.id, endpoint.health, error)
        else:
            log.info("endpoint %s is %s", endpoint.id, endpoint.health)


async def _request_token(endpoint: Endpoint, model: str, timeout: float) -> None:
    """Request a chat completion of one token. A server that is too busy for the request is healthy."""
    request = wire.decode_chat(
        msgspec.json.encode({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})
    )
    now = asyncio.get_running_loop().time()
    try:
        await endpoint.adapter.call(request, Call(Deadline(now + timeout, timeout, timeout), "health-check"))
    except CapacityError:
        return


async def watch(
    endpoint: Endpoint,
    config: ProbeConfig,
    rng: Random,
    starting: float | None = None,
    warm_up: ProbeConfig | None = None,
) -> None:
    """Probe until cancelled. The interval varies by a tenth, so that many gateways do not probe in step.

    `starting` is a shorter interval that applies until the server is healthy. `warm_up` is the probe of a server that
    is not healthy: with a request for a token, the server computes before it receives requests.
    """
    while True:
        await check(endpoint, config if warm_up is None or endpoint.health == "healthy" else warm_up)
        interval = config.interval
        if starting is not None and endpoint.health != "healthy":
            interval = min(interval, starting)
        await asyncio.sleep(interval * rng.uniform(0.9, 1.1))


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
    replica: int = 0
    """The number of the replica of a runtime."""
    warm_up: ProbeConfig | None = None
    """The first probe of a replica that computes before it receives requests."""
    origin: str = "configuration"
    """The source of the endpoint: the configuration, discovery or an operator."""
    account: EndpointConfig | None = None
    """The endpoint's own fields of the file, if it has an account of its own."""
    drained: bool = False
    """Whether it receives no new requests: an operator drains it, or it sleeps."""
    wakes: bool = False
    """Whether the gateway puts it to sleep and wakes it."""
    warm_until: float = 0.0
    """Loop time until which it stays warm after its pool is removed: a rollout can go back to it."""
    watcher: asyncio.Task[None] | None = None
    scraper: "Scraper | None" = None

    def watch(self, rng: Random) -> None:
        """Start its health checks."""
        if self.probe is not None:
            starting = STARTING_SECONDS if self.runtime is not None or self.wakes else None
            watching = partial(watch, self.endpoint, self.probe, rng, starting, self.warm_up)
            self.watcher = asyncio.create_task(lasting(f"probes of endpoint {self.endpoint.id}", watching))

    def scrape(self, config: SignalsConfig | None, pool: PoolConfig, rng: Random) -> None:
        """Read its metrics as configured; None stops reading."""
        if (self.scraper.config if self.scraper else None) == config:
            return
        if self.scraper is not None:
            self.scraper.stop()
        self.scraper = None
        if config is not None:
            from gateway.traffic.fleet.signals import Scraper

            address = self.endpoint.address if self.runtime is None else self.runtime.address
            connect = partial(session, pool.at(self.account), address)
            self.scraper = Scraper(self.endpoint, address, config, connect, rng)
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


def endpoint_id(secret: bytes, pool: str, target: DiscoveredEndpoint) -> str:
    """The id that clients see: its name in the file, or a digest of its URL. The `secret` prevents clients from
    guessing the address; the deployment's own secret gives the same id in each process and after every restart."""
    if target.account is not None and target.account.name is not None:
        return f"{pool}/{target.account.name}"
    return f"{pool}/{blake2b(target.place.encode(), digest_size=5, key=secret).hexdigest()}"


class RuntimeSource(NamedTuple):
    """Everything that a replica of a runtime depends on. Its address is empty if it is not known before the start."""

    server: RuntimeConfig
    replica: int
    address: str
    place: Place
    max_connections: int
    spoken: tuple[object, ...]


def source_of_replica(pool: PoolConfig, number: int, address: str) -> RuntimeSource:
    """The source of a replica of a pool's runtime."""
    assert pool.runtime is not None
    spoken = (pool.protocol, pool.model, pool.key, pool.key_header, pool.headers, pool.probe, pool.connect_timeout)
    place = place_of(pool.runtime, number)
    return RuntimeSource(pool.runtime.server, number, address, place, pool.max_connections, spoken)


def source_of(pool: PoolConfig, target: DiscoveredEndpoint, times: FileTimes) -> object:
    """Everything that the connections of a pool's endpoint depend on."""
    pool = pool.at(target.account)
    return (
        target.url, target.server_name, pool.protocol, pool.model, pool.key, pool.key_header, pool.credentials,
        pool.headers, pool.proxy, pool.tls, times,
        pool.provider_batches is None, pool.sleeps, pool.probe, pool.connect_timeout, pool.connection_age,
        pool.max_connections,
        pool.runtime_spans, pool.has_accounts,
    )  # fmt: skip


def make(
    pool: PoolConfig, id_: str, target: DiscoveredEndpoint, source: object, account: "ProviderAccount | None" = None
) -> PoolMember:
    """Create an endpoint of the pool. Raises `FleetError`."""
    pool = pool.at(target.account)
    try:
        checked = tls_of(pool, pool.protocol.name) if target.url.startswith("https://") else None
        read = None if account is None else account.read
        connect = partial(make_adapter, pool, Address(target.url, target.server_name, checked, read))
        adapter = connect()
    except Unmakeable as error:
        raise FleetError(f"pool {pool.name}: {error}") from None
    breaker = Breaker(pool.breaker.failures, pool.breaker.open_for)
    if account is None:
        endpoint = Endpoint(id_, adapter, breaker, address=target.url, place=target.place)
    else:
        from gateway.traffic.accounts.endpoint import AccountEndpoint

        one_model = pool.model_name is not None
        endpoint = AccountEndpoint(
            id_, adapter, breaker, account, address=target.url, place=target.place, one_model=one_model
        )
    endpoint.scrubber = scrubber(pool, target.url)
    endpoint.provider = provider_of(pool)
    if pool.runtime_spans and not target.url.startswith("https://"):  # a discovered one may
        endpoint.runtime, endpoint.provider = target.url, "headrace"
    if pool.protocol.name == "auto":
        endpoint.probed("Its protocol is not detected yet.", healthy_after=1, unhealthy_after=1)
    if pool.sleeps:
        endpoint.join()  # it may sleep
    return PoolMember(pool.name, source, endpoint, pool.probe, connect, wakes=pool.sleeps)


def make_replica(pool: PoolConfig, id_: str, source: RuntimeSource, runtimes: Runtimes) -> PoolMember:
    """Create a replica of the pool's runtime, with its server. Raises `FleetError`."""
    assert pool.runtime is not None

    def gone(reason: str) -> None:
        endpoint.probed(f"The runtime {reason}.", healthy_after=1, unhealthy_after=1)

    try:
        runtime = runtimes.make(pool.name, pool.runtime, gone, source.replica)
        connect = partial(_runtime_adapter, pool, runtime)
        adapter = connect()
    except (CannotLaunch, Unmakeable) as error:
        raise FleetError(f"pool {pool.name}: runtime: {error}") from None
    breaker = Breaker(pool.breaker.failures, pool.breaker.open_for)
    endpoint = Endpoint(id_, adapter, breaker)
    endpoint.scrubber = scrubber(pool, runtime.address)
    endpoint.provider = provider_of(pool)
    endpoint.runtime = "" if isinstance(pool.runtime, ProgramRuntime) else runtime.address
    if isinstance(runtime, MovingRuntime):
        runtime.follow(endpoint.moved)
    endpoint.probed("The runtime is starting.", healthy_after=1, unhealthy_after=1)
    runtime.start()
    probe = pool.probe if isinstance(pool.runtime, ProgramRuntime) else RUNTIME_PROBE
    return PoolMember(pool.name, source, endpoint, probe, connect, runtime, source.replica, _warm_up(pool, probe))


def _warm_up(pool: PoolConfig, probe: ProbeConfig | None) -> ProbeConfig | None:
    if pool.runtime is None or probe is None or pool.takes_tensors or not pool.runtime.replicas.warm_up:
        return None
    name = pool.model_name or pool.name
    return probe.model_copy(update={"ask": name, "timeout": WARM_UP_SECONDS, "healthy_after": 1})


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


def _runtime_adapter(pool: PoolConfig, runtime: Runtime) -> Adapter:
    """The adapter to the pool's runtime. Raises `Unmakeable`."""
    address = runtime.address
    if isinstance(pool.runtime, ProgramRuntime):
        ready = pool.runtime.ready if isinstance(pool.runtime, CommandRuntime) else None
        probe = pool.probe.model_copy(update={"path": ready}) if pool.probe is not None else None
        return make_adapter(pool.model_copy(update={"probe": probe}), Address(address))
    client = Client(address, max_connections=pool.max_connections + 1, fields=_key_field(pool.runtime))
    if isinstance(runtime, MovingRuntime):
        runtime.follow(client.move)
    if pool.takes_tensors:
        from adapters.upstreams.oip.http_client import OipHttpAdapter

        return OipHttpAdapter(client, model=pool.model_name)

    assert isinstance(pool.runtime, LlmRuntime)
    from adapters.upstreams.openai.client import OpenAIAdapter

    return OpenAIAdapter(
        client,
        model=pool.model_name,
        adapters=pool.runtime.adapters,
        ours=True,
        share_prefixes=pool.runtime.share_prefixes,
    )


def _key_field(config: RuntimeConfig | None) -> bytes:
    """The header field with the key of a runtime in a Ray cluster; empty without a key."""
    if not isinstance(config, PlacedRuntime) or config.ray is None or config.ray.key is None:
        return b""
    return encode_fields([("authorization", f"Bearer {config.ray.key.get_secret_value()}")])


def tls_of(pool: PoolConfig, spoken: str, *, renews: bool = False) -> ssl.SSLContext:
    """The TLS context of the pool's `https://` endpoints, see `dial.tls_context`. Raises `FleetError`."""
    try:
        return dial.tls_context(pool, spoken, renews=renews)
    except OSError as error:
        raise FleetError(f"pool {pool.name}: tls: {error}") from None


def session(pool: PoolConfig, address: str, timeout: float) -> "aiohttp.ClientSession":
    """A session for an endpoint's metrics and operations, with the TLS settings and the credentials of its requests."""
    import aiohttp

    connector: aiohttp.BaseConnector
    if address.startswith("unix:"):
        connector = aiohttp.UnixConnector(address.removeprefix("unix:"), limit=1)
    else:
        connector = aiohttp.TCPConnector(
            limit=1, ssl=tls_of(pool, "metrics") if address.startswith("https://") else True
        )
    headers = dict(credentials(pool, pool.protocol.metrics_key))
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(timeout), headers=headers)
