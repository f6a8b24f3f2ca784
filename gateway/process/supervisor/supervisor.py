"""The supervisor: several worker processes that act as one gateway. Serves no client, and outlives its workers."""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from adapters.process import TemporaryFolder
from config.loader import ConfigError, pack
from config.schema.config import Config
from config.watcher import Watcher
from gateway.admin.lifecycle import ConfigInfo, Lifecycle
from gateway.admin.listener import AdminListener
from gateway.auth.identity import Identity
from gateway.auth.keys import ApiKey, new_key
from gateway.background import Background
from gateway.errors import StartError
from gateway.process.data_plane import FIXED
from gateway.process.host import HostFeatures
from gateway.process.supervisor.admin import SupervisorBackend, supervisor_app
from gateway.process.supervisor.limit_slots import LimitSlots
from gateway.process.supervisor.loads import LoadTable
from gateway.process.supervisor.messages import WorkerSettings
from gateway.process.supervisor.process import WorkerLost
from gateway.process.supervisor.runtimes import Prepared, SharedRuntimes, addresses
from gateway.process.supervisor.scaling import WorkersActuator
from gateway.process.supervisor.sockets import Sockets
from gateway.process.supervisor.spawn import Spawner
from gateway.process.supervisor.stand_in import StandIn
from gateway.process.supervisor.swap import ReloadRefused, retire, swap
from gateway.process.supervisor.workers import Workers
from gateway.state.errors import StateError
from gateway.telemetry.background import BackgroundMetrics
from gateway.telemetry.merge import SampleTally
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.members import NOTHING
from gateway.traffic.fleet.server_tls import CertificateMetrics, ServerTls
from gateway.traffic.metrics.gauges import WorkerGauges
from policies.warm import warm_pools

log = logging.getLogger(__name__)


class Supervisor:
    """`start`, then `drain` and `aclose`; `reload` and `restart` in between."""

    def __init__(self, path: Path, config: Config) -> None:
        """Raises `StartError`."""
        self.lifecycle = Lifecycle(path, config)
        self.demo: ApiKey | None = new_key() if config.auth.demo_key else None
        self.admin_address = ("", 0)
        self.keda_address: tuple[str, int] | None = None
        self.runtimes = SharedRuntimes()
        self.identity = Identity(config, self.demo)
        self._tally = SampleTally()
        self._tls = ServerTls(config.listen.tls)  # for the admin listener, and for workers that start
        self._folder = TemporaryFolder()  # only this user may enter it
        self._sockets = Sockets(config.listen.http, config.listen.grpc, config.listen.endpoint_picker)
        demo = self.demo.plaintext if self.demo else None
        self._limit_slots = LimitSlots(config.workers)
        self._loads = LoadTable.create(self._limit_slots.slots)
        self._accounts = os.memfd_create("headrace-accounts", 0)  # empty until a pool has accounts
        os.set_inheritable(self._accounts, True)
        folder = Path(self._folder.name)
        spawner = Spawner(
            folder,
            self._sockets,
            self._limit_slots,
            self._loads,
            self._accounts,
            demo,
            self._tally,
            lambda: self._tls.files,
            self.identity.lend,
        )
        self.workers = Workers(spawner, self._sockets, self._tally, StandIn(self._sockets, lambda: self._tls.contexts))
        self._replicas = WorkersActuator(lambda: self.config, self.workers, self.runtimes, self._commit_runtimes)
        self._background = Background()
        self.host = HostFeatures(
            lambda: self.config, lambda: self.identity.pepper, self.workers.exchange, lambda: self._replicas,
            lambda: self._backend, self._background, self._tally.registry,
        )  # fmt: skip
        self._backend = SupervisorBackend(
            self.lifecycle, self.host, self.identity, self.workers, self.runtimes, self._tally
        )
        self._restarting: asyncio.Task[None] | None = None
        self._exits = AsyncExitStack()
        self._exits.callback(self._folder.cleanup)
        self._exits.callback(self._loads.close)
        self._exits.callback(os.close, self._accounts)
        self._exits.callback(self._limit_slots.close)
        self._exits.callback(self._backend.close)
        self._exits.push_async_callback(self.host.aclose)  # last: workers leave their counts to it
        self._exits.push_async_callback(self.runtimes.aclose)
        self._exits.push_async_callback(self.workers.aclose)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.lifecycle.config

    @property
    def http_address(self) -> tuple[str, int]:
        """The address of the HTTP listeners."""
        return self._sockets.address

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """The address of the gRPC listeners, if there are any."""
        return self._sockets.grpc_address

    @property
    def picker_address(self) -> tuple[str, int] | None:
        """The address of the endpoint pickers, if there are any."""
        return self._sockets.picker_address

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Returns when a worker serves. Runtimes may still be loading. Raises `StartError`."""
        self.host.prepare(self.config)
        try:
            await self.identity.open()
            self._exits.callback(self.identity.close)
            self._tls.load()
        except (FleetError, StateError) as error:
            raise StartError(str(error)) from None
        for name, work in self.identity.works():
            self._background.run(work, name)
        self.lifecycle.open(self.identity.store, self._background, self._exits)
        await self._listen()
        try:
            prepared = self.runtimes.prepare(self.config)
        except FleetError as error:
            raise StartError(str(error)) from None
        self.runtimes.commit(prepared)
        self.workers.drain_seconds = self.config.drain
        self._tally.watch(WorkerGauges(self.workers.slot_states))
        self._tally.watch(BackgroundMetrics())
        if self.config.listen.admin_tls:
            self._tally.watch(CertificateMetrics({"admin": self._tls}))
        self._exits.push_async_callback(self.host.end)
        await self.host.open()  # for the workers that start now
        self._tally.watch(ConfigInfo(self.lifecycle))
        await self.workers.start(_settings(self.config, prepared))
        self.host.configure(self.config)
        self.lifecycle.started()

    async def _listen(self) -> None:
        address = self.config.listen.admin
        admin = AdminListener(lambda: supervisor_app(self._backend, self.restart))
        self._exits.push_async_callback(admin.aclose)
        try:
            await self._sockets.begin(self.config.workers)
            self.keda_address = await self.host.listen_to_keda(self._exits)
            tls = self._tls.contexts if self.config.listen.admin_tls else None
            self.admin_address = await admin.listen_tcp(address.host, address.port, tls)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None

    # ── change ────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, watcher: Watcher) -> None:
        """Follow the configuration's file until the supervisor closes."""
        self._background.run(watcher.run, "configuration")

    async def reload(self, config: Config) -> None:
        """Put a new configuration in force in all workers at once, or log why it cannot be."""
        if fixed := self._fixed(config):
            self.reload_failed(f"{fixed}: a change needs a restart")
            return
        async with self._replicas.changing:
            await self._reload(config)

    async def _reload(self, config: Config) -> None:
        try:
            prepared = self.runtimes.prepare(config)
        except FleetError as error:
            self.reload_failed(str(error))
            return
        warm = dict(self.host.warm())
        try:
            await self.runtimes.placed(prepared)
            await self._apply(config, prepared, warm)
        except (ReloadRefused, FleetError, StateError, StartError, WorkerLost) as error:
            await self.runtimes.abandon(prepared)
            self.reload_failed(str(error))
            return
        except BaseException:
            await self.runtimes.abandon(prepared)
            raise
        self._commit_runtimes(prepared, warm_pools(self.config, warm))
        self.identity.configure(config)
        self.workers.drain_seconds = config.drain
        self.lifecycle.reloaded(config)
        self.host.configure(config)

    def _commit_runtimes(self, prepared: Prepared, warm: Mapping[str, float] = NOTHING) -> None:
        """Put prepared runtimes in force, and stop the replaced ones when no worker uses them."""
        for runtime in self.runtimes.commit(prepared, warm):
            work = retire(runtime, self.runtimes, self.workers)
            self._background.once(work, f"stop of runtime {runtime.label}")

    async def _apply(self, config: Config, prepared: Prepared, warm: dict[str, float]) -> None:
        """Reconfigure the workers, or replace them if a section changed that a running worker cannot change."""
        settings = _settings(config, prepared, warm)
        self.identity.check(config)
        self._tls.reload(config.listen.tls)
        if any(getattr(config, name) != getattr(self.config, name) for name in FIXED):
            async with self.workers.lock:
                await self.workers.resize(settings)
        else:
            await swap(self.workers, settings, config)

    def _fixed(self, config: Config) -> str:
        """The changed fields that only a restart of the supervisor can put in force."""
        old, new = self.config.listen, config.listen
        names = ["http", "grpc", "endpoint_picker", "admin", "admin_tls", "keda"]
        names += ["tls"] if old.admin_tls else []
        changed = [f"listen.{name}" for name in names if getattr(old, name) != getattr(new, name)]
        changed += [name for name in ("state", "auth") if getattr(self.config, name) != getattr(config, name)]
        if config.workers > self._limit_slots.most_workers:
            changed.append(f"workers above {self._limit_slots.most_workers}")
        return ", ".join(changed)

    def reload_failed(self, error: ConfigError | str) -> None:
        """Record that a changed file cannot be put in force."""
        self.lifecycle.reload_failed(error)

    def restart(self) -> bool:
        """Replace every worker, one after the other, without losing a request. False if a restart is in progress."""
        if self._restarting is not None and not self._restarting.done():
            return False
        self._restarting = self._background.once(self._restart(), "restart")
        return True

    async def _restart(self) -> None:
        log.info("restarting the workers, one after the other")
        for slot in list(self.workers.slots):
            async with self.workers.lock:
                if slot not in self.workers.slots:
                    continue  # a reload has removed the slot
                try:
                    await self.workers.replace([slot], self.workers.settings)
                except (StartError, WorkerLost) as error:
                    self.lifecycle.last_error = f"restart: worker {slot.number}: {error}"
                    log.error("restart stopped, the remaining workers are unchanged: %s", self.lifecycle.last_error)
                    return
        log.info("all workers restarted")

    async def models_without_endpoint(self) -> list[str]:
        """Names of models for which at least one worker has no eligible endpoint."""
        _, report = await self._backend.readiness()
        return list(report["models_without_endpoint"])

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> bool:
        """Stop accepting and wait for requests in flight. Returns True."""
        self.workers.accepting = False
        self.lifecycle.note("gateway.drain")
        await self._background.cancel()
        await self.workers.drain()
        return True

    async def aclose(self) -> None:
        """Close everything now."""
        self.workers.accepting = False
        self.lifecycle.note("gateway.stop")
        await self._background.cancel()
        await self._exits.aclose()


def _settings(config: Config, runtimes: Prepared, warm: dict[str, float] | None = None) -> WorkerSettings:
    return WorkerSettings(pack(config), config.workers, addresses(runtimes), warm or {})
