"""Several workers as one gateway: it serves no client itself, and outlives each of them."""

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

from adapters.temporary import TemporaryFolder
from config.handover import pack
from config.loader import ConfigError
from config.schema.config import Config
from config.watcher import Watcher
from gateway.admin_listener import AdminListener
from gateway.app import FIXED, StartError
from gateway.auth.audit import Act, Outcome
from gateway.auth.errors import KeysError
from gateway.auth.identity import Identity
from gateway.auth.keys import ApiKey, new_key
from gateway.auth.state import this_process
from gateway.auth.trail import Trail
from gateway.supervisor.admin import SupervisorBackend, supervisor_app
from gateway.supervisor.background import Background
from gateway.supervisor.limit_slots import LimitSlots
from gateway.supervisor.orders import Terms
from gateway.supervisor.process import WorkerLost
from gateway.supervisor.runtimes import Prepared, SharedRuntimes, addresses
from gateway.supervisor.sockets import Sockets
from gateway.supervisor.spawn import Spawner
from gateway.supervisor.swap import Refused, retire, swap
from gateway.supervisor.workers import Workers
from gateway.telemetry.merge import Tally
from gateway.telemetry.metrics import WorkerGauges
from gateway.tls import ServerTls
from gateway.traffic.member import FleetError

log = logging.getLogger(__name__)


class Supervisor:
    """`start`, then `drain` and `aclose`; `reload` and `restart` in between."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config
        self.demo: ApiKey | None = new_key() if config.auth.demo_key else None
        self.loaded = ""
        self.last_error = ""
        self.accepting = False
        self.address = ("", 0)
        self.grpc_address: tuple[str, int] | None = None
        self.admin_address = ("", 0)
        self.tally = Tally()
        self.runtimes = SharedRuntimes()
        self.identity = Identity(config, self.demo)
        self.trail: Trail | None = None
        self.watcher: Watcher | None = None
        self._tls = ServerTls(config.listen.tls if config.listen.admin_tls else None)
        self._folder = TemporaryFolder()  # nobody else may enter it
        self._sockets = Sockets(config.listen.http, config.listen.grpc)
        demo = self.demo.plaintext if self.demo else None
        self._limit_slots = LimitSlots(config.workers)
        spawner = Spawner(path, Path(self._folder.name), self._sockets, self._limit_slots, demo, self.tally)
        self.workers = Workers(spawner, self._sockets, self.tally)
        self._restarting: asyncio.Task[None] | None = None
        self._background = Background()
        self._ends = AsyncExitStack()
        self._ends.callback(self._folder.cleanup)
        self._ends.callback(self._limit_slots.close)
        self._ends.push_async_callback(self.runtimes.aclose)
        self._ends.push_async_callback(self.workers.aclose)

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Returns when a worker serves. Runtimes may still be loading. Raises `StartError`."""
        try:
            await self.identity.open()
            self._ends.callback(self.identity.close)
            self._tls.load()
        except (FleetError, KeysError) as error:
            raise StartError(str(error)) from None
        for name, work in self.identity.works():
            self._background.run(work, name)
        self._keep_trail()
        await self._listen()
        try:
            prepared = self.runtimes.prepare(self.config)
        except FleetError as error:
            raise StartError(str(error)) from None
        self.runtimes.commit(prepared)
        self.workers.drain_seconds = self.config.drain
        self.tally.watch(
            WorkerGauges(lambda: [(s.number, s.worker is not None, s.restarts) for s in self.workers.slots])
        )
        await self.workers.start(_terms(self.config, prepared))
        self._note_loaded()
        self.accepting = True

    def _keep_trail(self) -> None:
        """Ends before the database is given up, and after all that leaves an entry."""
        self.trail = Trail(self.identity.store.note)
        self._ends.push_async_callback(self.trail.aclose)
        self._background.run(self.trail.run(), "audit")
        self._note("gateway.start")

    async def _listen(self) -> None:
        listen = self.config.listen
        admin = AdminListener(supervisor_app(self))
        self._ends.push_async_callback(admin.aclose)
        try:
            self._sockets.grow(self.config.workers)
            self.address, self.grpc_address = self._sockets.address, self._sockets.grpc_address
            tls = self._tls.context if listen.admin_tls else None
            self.admin_address = await admin.listen_tcp(listen.admin.host, listen.admin.port, tls)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None

    # ── change ────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, watcher: Watcher) -> None:
        """Follow the configuration's file until the end."""
        self._background.run(watcher.run(), "configuration")

    async def reload(self, config: Config) -> None:
        """New terms for all workers at one moment, or for none, and then it says why."""
        if fixed := self._fixed(config):
            self.reload_failed(f"{fixed}: a change needs a restart")
            return
        try:
            prepared = self.runtimes.prepare(config)
        except FleetError as error:
            self.reload_failed(str(error))
            return
        terms = _terms(config, prepared)
        try:
            self.identity.check(config)
            self._tls.load()
            if any(getattr(config, name) != getattr(self.config, name) for name in FIXED):
                await self._exchange(terms)
            else:
                await swap(self.workers, terms, config)
        except (Refused, FleetError, KeysError, StartError, WorkerLost) as error:
            await self.runtimes.abandon(prepared)
            self.reload_failed(str(error))
            return
        except BaseException:
            await self.runtimes.abandon(prepared)
            raise
        for runtime in self.runtimes.commit(prepared):
            self._background.run(retire(runtime, self.workers), f"end of runtime {runtime.name}")
        self.config = config
        self.identity.configure(config)
        self.workers.drain_seconds = config.drain
        self._note_loaded()
        self._note("config.reload")
        log.info("configuration reloaded from %s", self.path)

    def _fixed(self, config: Config) -> str:
        """What only a supervisor that starts anew can change."""
        old, new = self.config.listen, config.listen
        mine = ["http", "grpc", "admin", "admin_tls", *(["tls"] if old.admin_tls else [])]
        changed = [f"listen.{name}" for name in mine if getattr(old, name) != getattr(new, name)]
        changed += [name for name in ("state", "auth") if getattr(self.config, name) != getattr(config, name)]
        if config.workers > self._limit_slots.most_workers:
            changed.append(f"workers above {self._limit_slots.most_workers}")
        return ", ".join(changed)

    async def _exchange(self, terms: Terms) -> None:
        """What a worker cannot change while it runs: successors for all of them, who take over together."""
        async with self.workers.lock:
            await self.workers.resize(terms)

    def reload_failed(self, error: ConfigError | str) -> None:
        """The old configuration stays in force."""
        self.last_error = str(error)
        self._note("config.reload", "refused", error=self.last_error)
        log.error("configuration not reloaded, the old one stays in force:\n%s", error)

    def _note_loaded(self) -> None:
        self.loaded = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.last_error = ""

    def restart(self) -> bool:
        """Every worker anew, one after the other, without a request lost; False while that is going on already."""
        if self._restarting is not None and not self._restarting.done():
            return False
        self._restarting = self._background.run(self._restart(), "restart")
        return True

    async def _restart(self) -> None:
        log.info("restarting the workers, one after the other")
        for slot in list(self.workers.slots):
            async with self.workers.lock:
                if slot not in self.workers.slots:
                    continue  # there are fewer by now
                try:
                    await self.workers.replace([slot], self.workers.terms)
                except (StartError, WorkerLost) as error:
                    self.last_error = f"restart: worker {slot.number}: {error}"
                    log.error("restart stopped, the workers that are left stay as they are: %s", self.last_error)
                    return
        log.info("all workers restarted")

    def _note(self, action: str, outcome: Outcome = "done", **detail: object) -> None:
        """For the audit log: what this process does, and with which file."""
        if self.trail is not None:
            detail |= {"pid": os.getpid(), "sha256": self.watcher.sha256 if self.watcher is not None else ""}
            self.trail.note(Act(this_process(), action, str(self.path), outcome, detail))

    async def missing(self) -> list[str]:
        """Names of models that some worker has no endpoint for."""
        _, told = await SupervisorBackend(self).readiness()
        return list(told["models_without_endpoint"])

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> bool:
        """Take no more, let requests in flight end. True when all did within the configured time."""
        self.accepting = False
        self._note("gateway.drain")
        await self._background.cancel()
        await self.workers.drain()
        return True

    async def aclose(self) -> None:
        """End everything now."""
        self.accepting = False
        self._note("gateway.stop")
        await self._background.cancel()
        await self._ends.aclose()


def _terms(config: Config, runtimes: Prepared) -> Terms:
    return Terms(pack(config), config.workers, addresses(runtimes))
