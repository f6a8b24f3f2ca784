"""The data plane of one process: all parts that serve clients' requests, and their reconfiguration."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.http1.heap import keep_trimmed
from adapters.http1.message import Handler, Headers, Refusal, Response
from config.code import CODE_POOL, calls_of_files
from config.schema.config import ClientModelConfig, Config, StateConfig
from gateway.admin.playground.listener import PlaygroundListener
from gateway.auth.identity import Identity
from gateway.auth.keys import ApiKey, new_key
from gateway.auth.table import KeyTable
from gateway.auth.teams.limits import with_teams
from gateway.auth.teams.store import StoredTeam
from gateway.background import Background
from gateway.errors import StartError
from gateway.features.batches.fronts.uploads import uploads_of
from gateway.features.batches.metrics import BatchMetrics
from gateway.features.batches.plane import BatchPlane
from gateway.features.bus.metrics import BusMetrics, LateAnswers
from gateway.features.bus.plane import BusPlane
from gateway.features.embeddings.loading import embedders
from gateway.features.experiments.inbox import FeedbackInbox
from gateway.features.experiments.metrics import FeedbackMetrics
from gateway.features.explain.header import explained
from gateway.features.journal.live import LiveJournal
from gateway.features.pipelines.graphs import PIPELINES
from gateway.features.pipelines.leaves import resources
from gateway.features.placement.local import LocalRuntimes
from gateway.features.recording.metrics import RecordMetrics
from gateway.features.recording.recorder import TrafficRecorder
from gateway.features.requests.metrics import RequestsLost
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.rollouts.warm import WarmArms
from gateway.features.shadow.metrics import ShadowMetrics
from gateway.features.shadow.plane import ShadowPlane
from gateway.features.stored.keeper import Keeper
from gateway.features.usage.metrics import UsageLost
from gateway.fronts.cors import Cors
from gateway.fronts.errors import openai_refusal
from gateway.limits.ledger import Ledger
from gateway.limits.memory import Memory
from gateway.limits.memory_metrics import MemoryMetrics
from gateway.limits.redis_metrics import RedisGauges
from gateway.limits.shared import SharedTable
from gateway.process.client_fronts import client_fronts
from gateway.process.client_listeners import ClientListeners
from gateway.request.client_exchange import traced
from gateway.request.core import Core, Watcher
from gateway.request.snapshot import Snapshot, build, with_keys
from gateway.state.errors import KeysError
from gateway.state.local_folder import local_folder
from gateway.telemetry import AccessLog, Metrics, Telemetry
from gateway.telemetry.background import BackgroundMetrics
from gateway.telemetry.traces.live import LiveTraces, TracesUnavailable, check_installed
from gateway.telemetry.traces.metrics import TraceMetrics
from gateway.traffic.fleet.fleet import Change, Fleet
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.members import NOTHING
from gateway.traffic.fleet.runtime import Runtimes
from gateway.traffic.metrics.caches import CacheGauges
from gateway.traffic.metrics.discovery import DiscoveryMetrics
from gateway.traffic.metrics.gauges import Gauges, IdentityGauges
from gateway.traffic.metrics.queues import QueueMetrics
from gateway.traffic.plan_state import PlanState
from gateway.traffic.pool import Pool

if TYPE_CHECKING:
    from gateway.limits.remote.redis_ledger import RedisLedger  # needs an extra

FIXED = ("listen", "workers", "state", "stored_responses", "batches", "auth", "http", "access_log", "record")
"""Sections that only a restart can change: sockets, files and secrets depend on them."""


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The objects that a supervisor creates once for all of its workers."""

    runtimes: Runtimes
    demo: ApiKey | None
    limits: SharedTable


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
        self.recorder: TrafficRecorder | None = None
        self.ledger = Ledger(table=shared.limits if shared else None, redis=self.redis)
        self.memory = Memory(config.http)
        self.runtimes = shared.runtimes if shared else LocalRuntimes()
        self.fleet = Fleet(self.rng, self.clock, self.runtimes)
        self.plan_state = PlanState()
        self.rollouts = LiveComparisons()
        self.warm_arms = WarmArms(lambda: self.config, self.fleet, self.rollouts)
        self.shadows = ShadowPlane(self.fleet, self.rng, self.clock)
        self.traces = LiveTraces(self.clock, self.rng, local_folder(config.state.database, "traces", None))
        self.journal = LiveJournal()
        self.demo = shared.demo if shared else new_key() if config.auth.demo_key else None
        self.identity = Identity(config, self.demo, self._keys_changed, self.clock)
        self.listeners = ClientListeners(config)
        self.accepting = False
        self.playground_path: str | None = None
        self._playground: PlaygroundListener | None = None
        self.batches: BatchPlane | None = None
        self.bus: BusPlane | None = None
        self.core: Core
        self._teams: tuple[StoredTeam, ...] = ()
        self._background = Background()
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
            self.rollouts.secret = self.identity.secret("request ids")
            self.listeners.load_certificates()
            self.plan_state.embedders = await asyncio.to_thread(embedders, self.config)
            await asyncio.to_thread(resources.prepare, self.config)
            check_installed(self.config.traces)
            change = self.fleet.prepare(self.config)
            await self.fleet.discovered(change)
            pools = self.fleet.commit(change)
        except (FleetError, KeysError, TracesUnavailable) as error:
            raise StartError(str(error)) from None
        await self._open_ledger()
        telemetry = Telemetry(self.metrics, self._access_log)
        self._exits.push_async_callback(self.traces.aclose)
        self._exits.callback(telemetry.flush)
        telemetry.tracer = self.traces.configure(self.config.traces)
        self._exits.callback(self.journal.close)
        telemetry.journal = self.journal.configure(self.config)
        self.metrics.tenants.configure(self.config.metrics)
        snapshot = self._build(self.config, pools)
        self.core = Core(snapshot, self.ledger, telemetry, self.rng, self.clock, memory=self.memory)
        self._watch_metrics()
        self._open_recorder(telemetry)
        self._watch_requests(self.config)
        self._open_shadows()
        if self.config.batches is not None:
            self.batches = BatchPlane(lambda: self.config, self.core, lambda: self.identity.pepper)
            plane = self.batches
            self.metrics.watch(BatchMetrics(plane.gate, lambda: plane.progress, plane.providers.unused))
        self._open_listeners()
        for name, work in self.identity.works():
            self._run(work, name)
        self._run(keep_trimmed, "heap")
        self._run(self.warm_arms.run, "warm arms")
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
        watch(IdentityGauges(lambda: self.identity.database_available, self.identity.tokens.key_sets))
        watch(QueueMetrics(self.fleet.queues))
        watch(DiscoveryMetrics(self.fleet, self.clock))
        watch(LateAnswers(self.fleet.endpoints))
        watch(BackgroundMetrics())
        watch(CacheGauges(self.plan_state.shelves))
        watch(MemoryMetrics(self.memory))
        watch(TraceMetrics(lambda: self.traces.exporter))
        watch(UsageLost(self.journal))
        watch(RequestsLost(self.journal))
        if self.redis is not None:
            watch(RedisGauges(self.redis))

    def _open_recorder(self, telemetry: Telemetry) -> None:
        if self.config.record is None:
            return
        self.recorder = telemetry.recorder = recorder = TrafficRecorder(self.config.record)
        self._configure_recorder(self.config)
        self.metrics.watch(RecordMetrics(recorder))
        self._exits.push_async_callback(self._close_recorder, telemetry, recorder)
        self._background.run(recorder.run, "record")

    def _open_shadows(self) -> None:
        writer = self.shadows.writer(lambda: self.config, lambda: self.identity.pepper)
        self.metrics.watch(ShadowMetrics(self.shadows.live, self.shadows.copies, writer))
        self._exits.push_async_callback(writer.aclose)
        self._exits.push_async_callback(self.shadows.aclose)
        self._run(writer.run, "shadows")

    def _configure_recorder(self, config: Config) -> None:
        if self.recorder is not None:
            self.recorder.configure(config)

    def _watch_requests(self, config: Config) -> None:
        """Watch requests with spans, and those whose traffic is recorded."""
        watchers: list[Watcher] = [explained] if self.core.telemetry.tracer is None else [explained, traced]
        if self.recorder is not None and config.record is not None and config.record.share:
            watchers.append(self.recorder.sample.watch)
        self.core.watchers = tuple(watchers)

    async def _close_recorder(self, telemetry: Telemetry, recorder: TrafficRecorder) -> None:
        telemetry.flush()
        await recorder.aclose()

    def _open_listeners(self) -> None:
        keeper, http = self._open_keeper(), self.config.http
        service = None if self.batches is None else self.batches.service
        fronts = client_fronts(self.core, self.is_ready, keeper, self._open_inbox(), batches=service)
        handler: Handler = fronts
        if http.cors is not None:
            handler = cors = Cors(fronts, http.cors)
            self._refusal = cors.refuse
        uploads = {} if service is None else uploads_of(service.config)
        self.listeners.open(handler, fronts.door, self.is_ready, self._refuse, http, self.memory.process, uploads)
        self._exits.push_async_callback(self.listeners.aclose)
        if (plane := self.batches) is not None:
            self._exits.push_async_callback(plane.aclose)
            self._run(lambda: plane.run(keeper), "batches")
        if self.config.listen.bus:
            self.bus = bus = BusPlane(self.config, self.core, keeper, lambda: self.identity.pepper)
            self.metrics.watch(BusMetrics(bus))
            self._exits.push_async_callback(bus.aclose)
            self._run(bus.run, "bus")

    async def open_playground(self, path: str) -> None:
        """Listen on a private Unix socket for the console's requests to models. After `open`."""
        listener = PlaygroundListener(self.core, self.config.http.max_body, self.memory.process)
        self._exits.push_async_callback(listener.aclose)
        await listener.listen(path)
        self.playground_path, self._playground = path, listener

    def _open_keeper(self) -> Keeper | None:
        config = self.config
        if config.stored_responses.store == "never":
            return None
        quota, database = self.core.storage_quota, config.state.database
        keeper = Keeper(database, config.stored_responses, config.http.max_body, quota=quota)
        self._exits.push_async_callback(keeper.aclose)
        self._run(keeper.run, "stored responses")
        return keeper

    def _open_inbox(self) -> FeedbackInbox:
        inbox = FeedbackInbox(lambda: self.config.state.database, lambda: self.identity.pepper, self.rollouts)
        self._exits.push_async_callback(inbox.aclose)
        self._run(inbox.run, "feedback")
        self.metrics.watch(FeedbackMetrics(inbox))
        return inbox

    def _run(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a background task until the data plane closes."""
        self._exits.callback(self._background.run(work, name).cancel)

    def _refuse(self, status: int, code: str, message: str, headers: Headers) -> Response:
        self.metrics.refused(code)
        return self._refusal(status, code, message, headers)

    # ── change ────────────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, config: Config) -> Change:
        """Create the parts of a new configuration, for `commit` or `abandon`. Raises `FleetError`."""
        changed = [name for name in FIXED if getattr(config, name) != getattr(self.config, name)]
        if changed:
            raise FleetError(f"{', '.join(changed)}: a change needs a restart")
        self.plan_state.embedders = await asyncio.to_thread(embedders, config)
        await asyncio.to_thread(resources.prepare, config)
        try:
            check_installed(config.traces)
        except TracesUnavailable as error:
            raise FleetError(str(error)) from None
        change = self.fleet.prepare(config)
        try:
            await self.fleet.ready(change)
            self.listeners.load_certificates()
            self.identity.check(config)
        except KeysError as error:
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
        pools = self.fleet.commit(change, self.warm_arms.configure(config, warm))
        self.core.snapshot = self._build(config, pools)
        self._configure_recorder(config)
        self.core.telemetry.tracer = self.traces.configure(config.traces)
        self._watch_requests(config)
        self.core.telemetry.journal = self.journal.configure(config)
        self.metrics.tenants.configure(config.metrics)
        self.config = config

    def _build(self, config: Config, pools: Mapping[str, Pool]) -> Snapshot:
        keys, tokens = self.identity.keys, self.identity.tokens
        salt = self.identity.secret("prefix caches")
        self.rollouts.configure(config)
        self.shadows.configure(config, self.plan_state.embedders)
        live, shadows = self.rollouts.by_name, self.shadows.live.by_name
        watches = (self.shadows.copies.watch,)
        return build(
            config, keys, pools, self.rng, self.clock, tokens, self.plan_state, salt, live, shadows, PIPELINES, watches
        )

    def _configure_ledger(self, config: Config) -> None:
        """Apply the limits of the file, and of the teams in the database."""
        self._teams = self.identity.keys.teams
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
        return [model.name for model in snapshot.config.models if not _has_endpoint(model, alive)]

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> bool:
        """Stop accepting and wait for requests. True if all ended within the configured time."""
        if not self.accepting:
            return True  # it never opened
        self.accepting = False
        if self.batches is not None:
            self.batches.drain()
        await self.shadows.copies.stop()
        drains = [self.listeners.drain(self.config.drain)]
        if self.bus is not None:
            drains.append(self.bus.drain(self.config.drain))
        if self._playground is not None:
            drains.append(self._playground.drain(self.config.drain))
        return all(await asyncio.gather(*drains))

    async def aclose(self) -> None:
        """Close every part, in the reverse order of its creation."""
        self.accepting = False
        await self._exits.aclose()


def _has_endpoint(model: ClientModelConfig, alive: Container[str]) -> bool:
    """Whether a model has an endpoint in one of the pools that are `alive`, or none of its own."""
    if model.pipeline is not None:
        return CODE_POOL in alive or not any(calls_of_files(model.pipeline))
    if any(route.models() for route in model.routes):
        return True
    return any(pool in alive for route in model.routes for pool in route.pools())


def _open_log(to: str) -> AccessLog:
    try:
        return AccessLog(to)
    except OSError as error:
        raise StartError(f"access_log.to: {to}: {error.strerror}") from None
