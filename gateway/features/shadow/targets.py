"""Targets of copies: pools with connections, breakers and measurements of their own, and models over such pools.

A copy never waits for a slot and never takes the last one: clients come first. Models have the routes and the pipelines
of the file, without its limits, caches and rollouts. Copies are on the operator's bill: their calls are reserved and
settled in a ledger of their own, so that no account of a tenant changes.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Protocol

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.errors import Unavailable, UpstreamTimeout
from adapters.requests import ModelRequest
from config.schema.config import Config, LimitsConfig, PoolConfig, QuotaConfig
from gateway.auth.keys import Principal
from gateway.auth.table import KeyTable
from gateway.features.pipelines.calls import Budgets, ClientModelCalls
from gateway.features.pipelines.graphs import PIPELINES
from gateway.limits.ledger import Ledger
from gateway.request.services import Services
from gateway.request.snapshot import Snapshot, build
from gateway.telemetry import Record
from gateway.traffic.endpoint import Endpoint, subject_of
from gateway.traffic.fleet.member import PoolMember
from gateway.traffic.plan_state import PlanState, TokenEmbedder
from gateway.traffic.pool import Pool
from policies.balancing.pickers import picker
from policies.breaker import Breaker

PROBE_SECONDS = 5.0


class CopyMember:
    """An endpoint of the fleet, and the adapter and the endpoint that copies use for it."""

    __slots__ = ("adapter", "live", "own")

    def __init__(self, live: Endpoint, adapter: Adapter, breaker: Breaker) -> None:
        self.live = live
        self.adapter = adapter
        self.own = Endpoint(live.id, adapter, breaker, address=live.address)
        self.own.scrubber = live.scrubber
        self.own.several = live.several


class Servers(Protocol):
    """The fleet as copies read it."""

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The pools in force."""

    def members_of(self, pool: str) -> list[PoolMember]:
        """The members of one pool."""


class CopyPool(Pool):
    """A pool of copies. It follows the endpoints and the health of the fleet's pool."""

    def __init__(
        self, config: PoolConfig, zone: str | None, servers: Servers, rng: Random, clock: Callable[[], float]
    ) -> None:
        made, limit = picker(config.balance, zone), config.max_in_flight
        super().__init__(config.name, [], made, max_in_flight=limit, rng=rng, clock=clock)
        self.config = config
        self._limit = limit
        self._servers = servers
        self._members: dict[Endpoint, CopyMember] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def lease(self, request: ModelRequest, call: Call, now: float) -> Endpoint | None:
        """Pick an endpoint that has a slot beside all requests of clients; None without one.

        Raises `Unavailable` if no endpoint is healthy, or all breakers of copies are open.
        """
        self._follow()
        alive = [member for member in self._members.values() if member.live.health != "unhealthy"]
        subject = subject_of(request, call)
        allowed = [member for member in alive if member.own.allows(subject, now)]
        if not allowed:
            raise Unavailable(f"{self.name}: no endpoint takes copies.")
        if self._servers.pools[self.name].waiting:
            return None
        limit = self._limit - 1  # the last slot is a client's
        ready = [member.own for member in allowed if member.live.in_flight + member.own.in_flight < max(limit, 1)]
        if not ready:
            return None
        endpoint = self._picker.pick(ready, request, call, now, self._rng)
        endpoint.begin(now, subject)
        return endpoint

    def _follow(self) -> None:
        """Connect to new endpoints of the fleet's pool, and drop those that have left."""
        if self.name not in self._servers.pools:  # a reload has removed it
            raise Unavailable(f"{self.name}: no endpoint takes copies.")
        live = self._servers.pools[self.name].endpoints
        if self._members.keys() == set(live):
            return
        connects = {member.endpoint: member.connect for member in self._servers.members_of(self.name)}
        for endpoint in [endpoint for endpoint in self._members if endpoint not in live]:
            self._close(self._members.pop(endpoint))
        breaker = self.config.breaker
        for endpoint in live:
            if endpoint not in self._members and endpoint in connects:
                own = Breaker(breaker.failures, breaker.open_for)
                self._members[endpoint] = CopyMember(endpoint, connects[endpoint](), own)

    def _close(self, member: CopyMember) -> None:
        task = asyncio.get_running_loop().create_task(member.adapter.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @property
    def in_flight(self) -> int:
        """The number of copies under way."""
        return sum(member.own.in_flight for member in self._members.values())

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if self.config.protocol.name == "auto":
            await self._detect()
        return await super().call(request, call)

    async def _detect(self) -> None:
        """Detect the protocols of new endpoints, as a health check does."""
        self._follow()
        for member in list(self._members.values()):
            if member.own.health == "unknown" and member.live.health != "unhealthy":
                try:
                    await member.adapter.probe(PROBE_SECONDS)
                except TimeoutError:
                    raise UpstreamTimeout(f"{self.name}: the protocol is not detected in time.") from None
                member.own.probed("", healthy_after=1, unhealthy_after=1)

    async def aclose(self) -> None:
        """Close all connections."""
        members, self._members = list(self._members.values()), {}
        await asyncio.gather(*(member.adapter.aclose() for member in members), *self._closing)


class CopyPools(Mapping[str, Pool]):
    """The pools of copies, each created when the first copy needs it."""

    def __init__(self, servers: Servers, rng: Random, clock: Callable[[], float]) -> None:
        self._servers = servers
        self._rng = rng
        self._clock = clock
        self._configs: Mapping[str, PoolConfig] = {}
        self._zone: str | None = None
        self._pools: dict[str, CopyPool] = {}
        self._gone: list[CopyPool] = []

    def configure(self, pools: Sequence[PoolConfig], zone: str | None) -> None:
        """Apply a configuration. A changed pool has new connections; copies under way end on the old ones."""
        self._configs, self._zone = {pool.name: pool for pool in pools}, zone
        for name in [name for name, pool in self._pools.items() if self._configs.get(name) != pool.config]:
            self._gone.append(self._pools.pop(name))

    def __getitem__(self, name: str) -> CopyPool:
        pool = self._pools.get(name)
        if pool is None:
            config = self._configs[name]
            pool = self._pools[name] = CopyPool(config, self._zone, self._servers, self._rng, self._clock)
        return pool

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    async def trim(self) -> None:
        """Close the connections of idle pools that the configuration no longer has."""
        gone = [pool for pool in self._gone if not pool.in_flight]
        self._gone = [pool for pool in self._gone if pool not in gone]
        await asyncio.gather(*(pool.aclose() for pool in gone))

    async def aclose(self) -> None:
        """Close all connections."""
        pools, self._gone, self._pools = [*self._gone, *self._pools.values()], [], {}
        await asyncio.gather(*(pool.aclose() for pool in pools))


class CopyModels:
    """The models of a configuration over the pools of copies."""

    def __init__(self, pools: CopyPools, rng: Random, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._pools = pools
        self._rng = rng
        self._clock = clock
        self._ledger = Ledger()
        self.services = Services(self._ledger, rng, clock, wall)
        self._plan_state = PlanState()
        self._config: Config | None = None
        self._snapshot: Snapshot | None = None

    def configure(self, config: Config, embedders: Mapping[str, TokenEmbedder]) -> None:
        """Apply a configuration. It is compiled when a copy first needs it."""
        self._config, self._snapshot, self._plan_state.embedders = config, None, embedders

    def caller(self, principal: Principal) -> ClientModelCalls:
        """Calls models with the facts of a client, and charges nobody."""
        if self._snapshot is None:
            assert self._config is not None
            config = _uncharged(self._config)
            self._ledger.configure(config.tenants, self._clock(), config.models)
            keys, state = KeyTable(b"", {}), self._plan_state
            self._snapshot = build(
                config, keys, self._pools, self._rng, self._clock, plan_state=state, graphs=PIPELINES
            )
        record = Record("", "", "", 0.0)  # nobody reads it: its ledger records nothing
        return ClientModelCalls(self.services, self._snapshot, principal, (), Budgets(), record, priced=True)


def _uncharged(config: Config) -> Config:
    """The configuration without limits, prices and caches."""
    models = [
        model.model_copy(
            update={
                "limits": QuotaConfig(),
                "price": None,
                "routes": tuple(route.model_copy(update={"cache": None}) for route in model.routes),
            }
        )
        for model in config.models
    ]
    tenants = [tenant.model_copy(update={"limits": LimitsConfig()}) for tenant in config.tenants]
    return config.model_copy(update={"models": tuple(models), "tenants": tuple(tenants)})
