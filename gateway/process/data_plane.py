"""The data plane of one process: all parts that serve clients' requests, and their reconfiguration."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.http1.message import Handler, Headers, Refusal, Response
from adapters.process import keep_trimmed
from config.code import CODE_POOL, calls_of_files
from config.schema.config import ClientModelConfig, Config, RouteConfig, StateConfig
from gateway.auth.identity import Identity
from gateway.auth.keys import ApiKey, new_key
from gateway.auth.table import KeyTable
from gateway.auth.teams.limits import with_teams
from gateway.auth.teams.store import StoredTeam
from gateway.background import Background
from gateway.errors import StartError
from gateway.fronts.cors import Cors
from gateway.fronts.errors import openai_refusal
from gateway.limits.ledger import Ledger
from gateway.limits.long_limits import long_limits
from gateway.limits.memory import Memory
from gateway.limits.memory_metrics import MemoryMetrics
from gateway.limits.shared import SharedTable
from gateway.process.client_features import ClientFeatures
from gateway.process.client_fronts import client_fronts
from gateway.process.client_listeners import ClientListeners
from gateway.process.own_runtimes import OwnRuntimes
from gateway.request.core import Core
from gateway.request.snapshot import Snapshot, build, with_keys
from gateway.state.errors import StateError
from gateway.telemetry import AccessLog, Metrics, Telemetry
from gateway.telemetry.background import BackgroundMetrics
from gateway.traffic.fleet.fleet import Change, Fleet
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.members import NOTHING
from gateway.traffic.fleet.runtime import Runtimes
from gateway.traffic.fleet.server_tls import CertificateMetrics, ServerFiles
from gateway.traffic.metrics.caches import CacheGauges
from gateway.traffic.metrics.discovery import DiscoveryMetrics
from gateway.traffic.metrics.gauges import Gauges, IdentityGauges
from gateway.traffic.metrics.queues import QueueMetrics
from gateway.traffic.plan_state import PlanState
from gateway.traffic.pool import Pool
from gateway.traffic.standing import AccountMemory
from policies.routing.rules import Rollouts

if TYPE_CHECKING:
    from gateway.admin.playground.listener import PlaygroundListener
    from gateway.limits.remote.redis_ledger import RedisLedger  # needs an extra

FIXED = ("listen", "workers", "state", "stored_responses", "batches", "auth", "http", "access_log", "record")
"""Sections that only a restart can change: sockets, files and secrets depend on them."""


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The objects that a supervisor creates once for all of its workers."""

    runtimes: Runtimes
    demo: ApiKey | None
    limits: SharedTable
    keys: Path
    """The path of a sealed copy of the keys."""
    certificate: ServerFiles | None
    accounts: AccountMemory


class DataPlane:
    """`open`, then `drain` and `aclose`; `prepare` and `commit` or `abandon` for each new configuration."""

    def __init__(self, config: Config, shared: SharedResources | None = None) -> None:
        """Raises `StartError`."""
        self.config = config
        self._refusal: Refusal = openai_refusal
        self.clock = time.monotonic  # the event loop's clock has the same origin but a coarser resolution
        self.rng = random.Random()
        self.metrics = Metrics()
        self.redis = self._open_redis(config.state)
        self.ledger = Ledger(table=shared.limits if shared else None, redis=self.redis)
        self.memory = Memory(config.http)
        self.runtimes = shared.runtimes if shared else OwnRuntimes()
        self.fleet = Fleet(self.rng, self.clock, self.runtimes)
        if shared is not None:
            self.fleet.account_memory = shared.accounts
        self.plan_state = PlanState()
        self.demo = shared.demo if shared else new_key() if config.auth.demo_key else None
        self.identity = Identity(
            config, self.demo, self._keys_changed, self.clock, shared.keys if shared else None,
            is_worker=shared is not None,
        )  # fmt: skip
        self.listeners = ClientListeners(config, shared.certificate if shared else None)
        self.accepting = False
        self.playground_path: str | None = None
        self._playground: PlaygroundListener | None = None
        self.core: Core
        self._teams: tuple[StoredTeam, ...] = ()
        self._background = Background()
        self.features = ClientFeatures(
            lambda: self.config, self.fleet, self.identity, self.rng, self.clock, self._background,
            self.metrics.registry,
        )  # fmt: skip
        self._access_log = _open_log(config.access_log.to)
        self._exits = AsyncExitStack()
        self._exits.push_async_callback(self._access_log.aclose)
        self._exits.push_async_callback(self.fleet.aclose)

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Create everything that requests need, without listening. Raises `StartError`."""
        try:
            await self.identity.open()
            self._exits.callback(self.identity.close)
            self.fleet.secret = self.identity.secret("endpoint ids")
            self.listeners.load_certificates()
            self.plan_state.embedders = await self.features.load(self.config)
            change = self.fleet.prepare(self.config)
            await self.fleet.discovered(change)
            pools = self.fleet.commit(change)
        except (FleetError, StateError) as error:
            raise StartError(str(error)) from None
        await self._open_ledger()
        telemetry = Telemetry(self.metrics, self._access_log)
        self._exits.push_async_callback(self.features.aclose)
        self.metrics.tenants.configure(self.config.metrics)
        snapshot = self._build(self.config, pools)
        self.core = Core(snapshot, self.ledger, telemetry, self.rng, self.clock, memory=self.memory)
        self._watch_metrics()
        self.features.core = self.core
        self._exits.push_async_callback(self._open_listeners().aclose)
        self._exits.push_async_callback(self.features.aclose_doors)
        self.features.configure(self.config)
        for name, work in self.identity.works():
            self._run(work, name)
        self._exits.callback(keep_trimmed())
        self.accepting = True

    def _open_redis(self, state: StateConfig) -> "RedisLedger | None":
        if state.redis is None:
            return None
        try:
            from gateway.limits.remote.redis_ledger import RedisLedger
        except ModuleNotFoundError as error:
            raise StartError(str(error)) from None
        return RedisLedger(state.redis, state.redis_timeout, self.rng, self.clock, time.time)

    async def _open_ledger(self) -> None:
        self._configure_ledger(self.config)
        if self.redis is not None:
            self._run(self.redis.run, "redis")
            self._exits.push_async_callback(self.redis.aclose)
            await self.redis.opened()

    def _watch_metrics(self) -> None:
        """Register the metrics that are read at each scrape."""
        watch = self.metrics.watch
        accounts, tenants = self.ledger.accounts.values, self.metrics.tenants
        watch(Gauges(self.fleet.endpoints, accounts, tenants, lambda: self._access_log.dropped, self.clock))
        watch(
            IdentityGauges(
                lambda: self.identity.database_available, lambda: self.identity.keys_age, self.identity.tokens.key_sets
            )
        )
        watch(QueueMetrics(self.fleet.queues))
        watch(DiscoveryMetrics(self.fleet, self.clock))
        watch(BackgroundMetrics())
        watch(CacheGauges(self.plan_state.shelves))
        watch(MemoryMetrics(self.memory))
        watch(CertificateMetrics(self.listeners.certificates, lambda: self.config.pools))
        if self.redis is not None:
            from gateway.limits.redis_metrics import RedisGauges

            watch(RedisGauges(self.redis))

    def _open_listeners(self) -> ClientListeners:
        http, features = self.config.http, self.features
        fronts = client_fronts(
            self.core, self.is_ready, lambda: features.keeper, lambda: features.inbox, lambda: features.service
        )
        handler: Handler = fronts
        if http.cors is not None:
            handler = cors = Cors(fronts, http.cors)
            self._refusal = cors.refuse
        memory, uploads = self.memory.process, features.uploads()
        self.listeners.open(handler, fronts.door, self.is_ready, self._refuse, http, memory, uploads)
        return self.listeners

    async def open_playground(self, path: str) -> None:
        """Listen on a private Unix socket for the console's requests to models. After `open`."""
        from gateway.admin.playground.listener import PlaygroundListener

        listener = PlaygroundListener(self.core, self.config.http.max_body, self.memory.process)
        self._exits.push_async_callback(listener.aclose)
        await listener.listen(path)
        self.playground_path, self._playground = path, listener

    def _run(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a background task until the data plane closes."""
        self._exits.callback(self._background.run(work, name).cancel)

    def _refuse(self, status: int, code: str, message: str, headers: Headers) -> Response:
        self.metrics.refused(status, code)
        return self._refusal(status, code, message, headers)

    # ── change ────────────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, config: Config) -> Change:
        """Create the parts of a new configuration, for `commit` or `abandon`. Raises `FleetError`."""
        changed = [name for name in FIXED if getattr(config, name) != getattr(self.config, name)]
        if changed:
            raise FleetError(f"{', '.join(changed)}: a change needs a restart")
        self.plan_state.embedders = await self.features.load(config)
        change = self.fleet.prepare(config)
        try:
            await self.fleet.ready(change)
            self.listeners.load_certificates()
            self.identity.check(config)
            await self.features.begin_limits(config, long_limits(with_teams(config, self._teams), config.models))
        except StateError as error:
            self.abandon(change)
            raise FleetError(str(error)) from None
        except BaseException:
            self.abandon(change)
            raise
        return change

    def abandon(self, change: Change) -> None:
        """Close the parts that `prepare` created."""
        self.fleet.abandon(change)

    def commit(self, change: Change, warm: Mapping[str, float] = NOTHING) -> None:
        """Put a prepared configuration in force. Cannot fail and does not yield to other tasks. `warm`: the seconds for
        which the old arm of each rollout must still be able to serve."""
        config = change.config
        self.identity.configure(config)
        self._configure_ledger(config)
        self.memory.configure(tenant.name for tenant in config.tenants)
        pools = self.fleet.commit(change, self.features.warm(config, warm))
        self.core.snapshot = self._build(config, pools)
        self.features.configure(config)
        self.metrics.tenants.configure(config.metrics)
        self.config = config

    def _build(self, config: Config, pools: Mapping[str, Pool]) -> Snapshot:
        keys, tokens = self.identity.keys, self.identity.tokens
        salt = self.identity.secret("prefix caches")
        rollouts = self.features.comparisons(config)
        shadows, watches = self.features.copies(config, self.plan_state.embedders)
        graphs, state = self.features.graphs(config), self.plan_state
        guards, guards_answers = self.features.guards(config)
        watches = (*guards, *watches)  # first: what comes later sees what has passed
        return build(
            config, keys, pools, self.rng, self.clock, tokens, state, salt, rollouts, shadows, graphs, watches,
            guards_answers, self.features.restored,
        )  # fmt: skip

    def _configure_ledger(self, config: Config) -> None:
        """Apply the limits of the file, and of the teams in the database."""
        self._teams = self.identity.keys.teams
        self.ledger.drawn.is_recorded = config.usage is not None
        self.ledger.configure(with_teams(config, self._teams), self.clock(), config.models)

    def _keys_changed(self, keys: KeyTable) -> None:
        if keys.teams != self._teams:
            self._configure_ledger(self.config)
        self.core.snapshot = with_keys(self.core.snapshot, keys)

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────

    def is_ready(self) -> bool:
        """Whether requests are accepted and each model has an endpoint."""
        return self.accepting and not self.models_without_endpoint()

    def models_without_endpoint(self) -> list[str]:
        """Names of models for which no route leads to an eligible endpoint. A pipeline has only that of its files."""
        snapshot = self.core.snapshot
        pools = snapshot.pools
        alive = {
            name for name, pool in pools.items() if any(e.health != "unhealthy" for e in pool.endpoints) or pool.starts
        }
        models = snapshot.config.models
        return [model.name for model in models if not _has_endpoint(model, alive, snapshot.rollouts)]

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> bool:
        """Stop accepting and wait for requests. True if all ended within the configured time."""
        if not self.accepting:
            return True  # it never opened
        self.accepting = False
        drains = self.features.drain(self.config.drain)
        await self.features.stop_copies()
        drains.append(self.listeners.drain(self.config.drain))
        if self._playground is not None:
            drains.append(self._playground.drain(self.config.drain))
        return all(await asyncio.gather(*drains))

    async def aclose(self) -> None:
        """Close every part, in the reverse order of its creation."""
        self.accepting = False
        await self._exits.aclose()


def _has_endpoint(model: ClientModelConfig, alive: Container[str], rollouts: Rollouts) -> bool:
    """Whether a model has an endpoint in one of the pools that are `alive`, or none of its own."""
    if model.pipeline is not None:
        return CODE_POOL in alive or not any(calls_of_files(model.pipeline))
    if any(route.models() for route in model.routes):
        return True
    return any(pool in alive for route in model.routes for pool in _pools(route, rollouts))


def _pools(route: RouteConfig, rollouts: Rollouts) -> Iterator[str]:
    """The pools of a route. An arm of a rollout without a share receives no request: its pool does not count."""
    comparison = route.comparison
    if comparison is None:
        yield from route.pools()
        return
    live = rollouts.get(comparison.name)
    for side, share in zip(comparison.sides, comparison.first_shares if live is None else live.shares, strict=True):
        if side.pool is not None and share > 0:
            yield side.pool
    for fallback in route.fallback:
        yield from fallback.pools()


def _open_log(to: str) -> AccessLog:
    try:
        return AccessLog(to)
    except OSError as error:
        raise StartError(f"access_log.to: {to}: {error.strerror}") from None
