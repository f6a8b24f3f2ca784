"""The composition root: everything that runs is put together here, changed here, and ended here."""

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.http1.heap import keep_trimmed
from adapters.http1.listeners import Listeners
from adapters.http1.message import Response
from adapters.http1.server import Limits, Server
from adapters.open_files import clients_that_fit
from config.loader import ConfigError
from config.schema.config import Config, HttpConfig, StateConfig
from config.watcher import Watcher
from gateway.admin_backend import GatewayBackend
from gateway.admin_listener import AdminListener
from gateway.auth.audit import Act, Outcome
from gateway.auth.errors import KeysError
from gateway.auth.identity import Identity
from gateway.auth.keys import ApiKey, new_key
from gateway.auth.state import this_process
from gateway.auth.table import KeyTable
from gateway.auth.trail import Trail
from gateway.core import Core
from gateway.embeddings.loading import embedders
from gateway.fronts.admin import front as admin
from gateway.fronts.cors import Cors
from gateway.fronts.door import Door
from gateway.fronts.errors import openai_refusal
from gateway.fronts.listener import Fronts
from gateway.limits.ledger import Ledger
from gateway.limits.memory import Memory
from gateway.limits.shared import SharedTable
from gateway.placement.runtime import Runtimes
from gateway.snapshot import Snapshot, build, with_keys
from gateway.stored.keeper import Keeper
from gateway.telemetry import AccessLog, Metrics, Telemetry
from gateway.telemetry.caches import CacheGauges
from gateway.telemetry.discovery import DiscoveryMetrics
from gateway.telemetry.memory import MemoryMetrics
from gateway.telemetry.metrics import Gauges, IdentityGauges
from gateway.telemetry.queues import QueueMetrics
from gateway.telemetry.redis import RedisGauges
from gateway.tls import ServerTls
from gateway.traffic.fleet import Change, Fleet
from gateway.traffic.member import FleetError
from gateway.traffic.plan_state import PlanState
from gateway.traffic.pool import Pool

if TYPE_CHECKING:
    from adapters.http2.server import Server as GrpcServer  # which needs an extra, as does
    from gateway.limits.remote.redis_ledger import RedisLedger

log = logging.getLogger(__name__)

# What sockets, files and secrets hang on: changed by a restart, and refused on a reload rather than ignored.
FIXED = ("listen", "workers", "state", "stored_responses", "auth", "http", "access_log")


class StartError(Exception):
    """Why the gateway cannot start, in a sentence for ops."""


@dataclass(frozen=True, slots=True)
class Lent:
    """What one of several workers does not make itself. Nor does it tell the audit log of its own life: its
    supervisor does."""

    runtimes: Runtimes
    demo: ApiKey | None
    limits: SharedTable


class Gateway:
    """One gateway process. `start`, then `drain` and `aclose`; `reload` in between."""

    def __init__(self, path: Path, config: Config, lent: Lent | None = None) -> None:
        """Raises `StartError`."""
        self.path = path
        self.config = config
        self.clock = time.monotonic  # what the loop's own clock shows too, but that one ticks in milliseconds
        self.rng = random.Random()
        self.metrics = Metrics()
        self.redis = self._open_redis(config.state)
        self.ledger = Ledger(table=lent.limits if lent else None, redis=self.redis)
        self.memory = Memory(config.http)
        self.fleet = Fleet(self.rng, self.clock, lent.runtimes if lent else None)
        self.plan_state = PlanState()
        self.demo = lent.demo if lent else new_key() if config.auth.demo_key else None
        self.identity = Identity(config, self.demo, self._keys_changed, self.clock)
        self.loaded = ""
        self.last_error = ""
        self.accepting = False
        self.address = ("", 0)
        self.grpc_address: tuple[str, int] | None = None
        self.admin_address = ("", 0)
        self.server: Server
        self.grpc: GrpcServer | None = None
        self.core: Core
        self.trail: Trail | None = None
        self._alone = lent is None
        self.watcher: Watcher | None = None
        self._access_log = _open_log(config.access_log.to)
        # Of a client's protocols the first of these is taken.
        self._tls = ServerTls(config.listen.tls, *(("http/1.1", "h2") if config.http.http2 else ("http/1.1",)))
        self._grpc_tls = ServerTls(config.listen.tls, "h2")
        self._ends = AsyncExitStack()
        self._ends.push_async_callback(self._access_log.aclose)
        self._ends.push_async_callback(self.fleet.aclose)

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Open, and listen. Runtimes may still be loading: `/readyz` tells. Raises `StartError`."""
        await self.open()
        self._note("gateway.start")
        await self._listen()

    async def open(self) -> None:
        """Make everything that requests need, save listeners. Raises `StartError`."""
        try:
            await self.identity.open()
            self._ends.callback(self.identity.close)
            self.fleet.secret = self.identity.secret("endpoint ids")
            self._load_tls()
            self.plan_state.embedders = await asyncio.to_thread(embedders, self.config)
            change = self.fleet.prepare(self.config)
            await self.fleet.discovered(change)
            pools = self.fleet.commit(change)
        except (FleetError, KeysError) as error:
            raise StartError(str(error)) from None
        await self._open_ledger()
        snapshot = self._build(self.config, pools)
        telemetry = Telemetry(self.metrics, self._access_log)
        self._ends.callback(telemetry.flush)
        self.core = Core(snapshot, self.ledger, telemetry, self.rng, self.clock, memory=self.memory)
        self._keep_trail()
        self.metrics.watch(
            Gauges(self.fleet.endpoints, self.ledger.accounts.values, lambda: self._access_log.dropped, self.clock)
        )
        self.metrics.watch(IdentityGauges(lambda: self.identity.database_available, self.identity.tokens.key_sets))
        self.metrics.watch(QueueMetrics(self.fleet.queues))
        self.metrics.watch(DiscoveryMetrics(self.fleet, self.clock))
        self.metrics.watch(CacheGauges(self.plan_state.shelves))
        self.metrics.watch(MemoryMetrics(self.memory))
        self._note_loaded()
        fronts = Fronts(self.core, self.is_ready, self._open_keeper())
        cors = self.config.http.cors
        handler = fronts if cors is None else Cors(fronts, cors)
        http = self._fitting()
        self.server = Server(handler, self._http_limits(http), self._refuse, self.memory.process)
        self._ends.push_async_callback(self.server.aclose)
        if self.config.listen.grpc is not None:
            self.grpc = self._grpc_server(fronts.door, http)
            self._ends.push_async_callback(self.grpc.aclose)
        for name, work in self.identity.works():
            self._run(work, name)
        self._run(keep_trimmed(), "heap")
        self.accepting = True

    def _grpc_server(self, door: Door, http: HttpConfig) -> "GrpcServer":
        try:
            from gateway.fronts.grpc.listener import grpc_server
        except ModuleNotFoundError as error:
            raise StartError(
                f"listen.grpc needs an extra ({error.name} is missing): pip install 'headrace[grpc]'"
            ) from None
        return grpc_server(door, self.is_ready, http)

    def _load_tls(self) -> None:
        self._tls.load()
        if self.config.listen.grpc is not None:
            self._grpc_tls.load()

    def _open_redis(self, state: StateConfig) -> "RedisLedger | None":
        if state.redis is None:
            return None
        try:
            from gateway.limits.remote.redis_ledger import RedisLedger
        except ModuleNotFoundError as error:
            raise StartError(str(error)) from None
        return RedisLedger(state.redis, state.redis_timeout, self.rng, self.clock, time.time)

    async def _open_ledger(self) -> None:
        self.ledger.configure(self.config.tenants, self.clock(), self.config.models)
        if self.redis is not None:
            self._run(self.redis.run(), "redis")
            self._ends.push_async_callback(self.redis.aclose)
            self.metrics.watch(RedisGauges(self.redis))
            await self.redis.opened()

    def _run(self, work: Coroutine[object, object, None], name: str) -> None:
        """A task that goes on until the gateway ends; one that ends before has a bug, which is logged."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_unexpected_end)
        self._ends.callback(task.cancel)

    def _build(self, config: Config, pools: Mapping[str, Pool]) -> Snapshot:
        keys, tokens = self.identity.keys, self.identity.tokens
        salt = self.identity.secret("prefix caches")
        return build(config, keys, pools, self.rng, self.clock, tokens, self.plan_state, salt)

    def _keep_trail(self) -> None:
        """Ends before the database is given up, and after all that leaves an entry."""
        self.trail = Trail(self.identity.store.note)
        self._ends.push_async_callback(self.trail.aclose)
        self._run(self.trail.run(), "audit")

    def _open_keeper(self) -> Keeper | None:
        config = self.config
        if config.stored_responses.store == "never":
            return None
        keeper = Keeper(config.state.database, config.stored_responses, config.http.max_body)
        self._ends.push_async_callback(keeper.aclose)
        self._run(keeper.run(), "stored responses")
        return keeper

    def _fitting(self) -> HttpConfig:
        """Bounds on clients, with the connections that the limit of open files allows.

        Each listener has as many, and each client's request may need a connection to an upstream, too.
        """
        http, listeners = self.config.http, 1 if self.config.listen.grpc is None else 2
        fit = clients_that_fit(http.max_connections, 2 * listeners)
        return http.model_copy(update={"max_connections": fit})

    def _http_limits(self, http: HttpConfig) -> Limits:
        return Limits(
            max_head=http.max_head,
            max_body=http.max_body,
            head_timeout=http.head_timeout,
            body_timeout=http.body_timeout,
            keepalive_timeout=http.keepalive_timeout,
            send_timeout=http.send_timeout,
            max_connections=http.max_connections,
            http2=http.http2,
        )

    async def _listen(self) -> None:
        desk = AdminListener(admin.make_app(GatewayBackend(self)))
        self._ends.push_async_callback(desk.aclose)
        listen = self.config.listen
        try:
            self.address = await self.server.listen_tcp(listen.http.host, listen.http.port, self._tls.context)
            if self.grpc is not None and listen.grpc is not None:
                tls = self._grpc_tls.context
                self.grpc_address = await self.grpc.listen_tcp(listen.grpc.host, listen.grpc.port, tls)
            tls = self._tls.context if listen.admin_tls else None
            self.admin_address = await desk.listen_tcp(listen.admin.host, listen.admin.port, tls)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None

    async def listen_socket(self, bound: socket.socket, *, grpc: bool) -> tuple[Listeners, asyncio.Server]:
        """Serve clients from a socket that another process has bound; who serves, and what it has of the socket."""
        if grpc:
            assert self.grpc is not None
            return self.grpc, await self.grpc.listen_socket(bound, self._grpc_tls.context)
        return self.server, await self.server.listen_socket(bound, self._tls.context)

    def _refuse(self, status: int, code: str, message: str) -> Response:
        self.metrics.refused(code)
        return openai_refusal(status, code, message)

    # ── change ────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, action: str, outcome: Outcome = "done", **detail: object) -> None:
        """For the audit log: what this process does, and with which file. A worker's supervisor tells of that."""
        if self.trail is not None and self._alone:
            detail |= {"pid": os.getpid(), "sha256": self.watcher.sha256 if self.watcher is not None else ""}
            self.trail.note(Act(this_process(), action, str(self.path), outcome, detail))

    def watch(self, watcher: Watcher) -> None:
        """Follow the configuration's file until the end."""
        self._run(watcher.run(), "configuration")

    async def reload(self, config: Config) -> None:
        """Swap in a new configuration, whole, or keep the old one and say why."""
        try:
            change = await self.prepare(config)
        except FleetError as error:
            self.reload_failed(str(error))
            return
        self.commit(change)
        log.info("configuration reloaded from %s", self.path)

    async def prepare(self, config: Config) -> Change:
        """Make what a new configuration needs, for `commit` or `abandon`. Raises `FleetError` when it cannot be."""
        changed = [name for name in FIXED if getattr(config, name) != getattr(self.config, name)]
        if changed:
            raise FleetError(f"{', '.join(changed)}: a change needs a restart")
        self.plan_state.embedders = await asyncio.to_thread(embedders, config)
        change = self.fleet.prepare(config)
        try:
            await self.fleet.ready(change)
            self._load_tls()
            self.identity.check(config)
        except KeysError as error:
            self.abandon(change)
            raise FleetError(str(error)) from None
        except BaseException:
            self.abandon(change)
            raise
        return change

    def abandon(self, change: Change) -> None:
        """It will not be used: end what was made for it."""
        self.fleet.abandon(change)

    def commit(self, change: Change) -> None:
        """Nothing here can fail and nothing is awaited: a request sees all of the old or all of the new."""
        config = change.config
        self.identity.configure(config)
        self.ledger.configure(config.tenants, self.clock(), config.models)
        self.memory.configure(tenant.name for tenant in config.tenants)
        pools = self.fleet.commit(change)
        self.core.snapshot = self._build(config, pools)
        self.config = config
        self._note_loaded()
        self._note("config.reload")

    def reload_failed(self, error: ConfigError | str) -> None:
        """The old configuration stays in force."""
        self.last_error = str(error)
        self._note("config.reload", "refused", error=self.last_error)
        log.error("configuration not reloaded, the old one stays in force:\n%s", error)

    def _note_loaded(self) -> None:
        self.loaded = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.last_error = ""

    def _keys_changed(self, keys: KeyTable) -> None:
        self.core.snapshot = with_keys(self.core.snapshot, keys)

    def is_ready(self) -> bool:
        """Whether requests are taken, and each model has an endpoint."""
        return self.accepting and not self.models_without_endpoint()

    def models_without_endpoint(self) -> list[str]:
        """Names of models of which no route leads to an endpoint that may be picked."""
        pools = self.core.snapshot.pools
        alive = {name for name, pool in pools.items() if any(e.health != "unhealthy" for e in pool.endpoints)}
        return [
            model.name
            for model in self.core.snapshot.config.models
            if not any(pool in alive for route in model.routes for pool in route.pools())
        ]

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> bool:
        """Take no more, let requests in flight end. True when all did within the configured time."""
        if not self.accepting:
            return True  # it never opened
        self.accepting = False
        self._note("gateway.drain")
        if self.grpc is None:
            return await self.server.drain(self.config.drain)
        both = await asyncio.gather(self.server.drain(self.config.drain), self.grpc.drain(self.config.drain))
        return all(both)

    async def aclose(self) -> None:
        """End everything, in the reverse order of its making."""
        self.accepting = False
        self._note("gateway.stop")
        await self._ends.aclose()


def _open_log(to: str) -> AccessLog:
    try:
        return AccessLog(to)
    except OSError as error:
        raise StartError(f"access_log.to: {to}: {error.strerror}") from None


def _log_unexpected_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the task %s ended, and with it what it does", task.get_name(), exc_info=error)
