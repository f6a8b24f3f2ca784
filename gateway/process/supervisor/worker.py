"""A worker: the data plane of one of several processes, on inherited sockets."""

import asyncio
import socket
from collections.abc import Collection
from pathlib import Path

from adapters.http1.listeners import Listeners, SharedSocket
from config.loader import unpack
from config.schema.config import Config
from gateway.auth.keys import ApiKey, id_of
from gateway.features.placement.supervisor_runtimes import SupervisorRuntimes
from gateway.features.scaling.actuator import demands
from gateway.limits.shared import SharedTable
from gateway.process.data_plane import DataPlane, SharedResources
from gateway.process.supervisor.handover import Handover
from gateway.process.supervisor.loads import LoadTable
from gateway.process.supervisor.messages import RolloutExchange, StartMessage, WorkerSettings, calls_path
from gateway.process.supervisor.share import share
from gateway.telemetry.process_log import configure_log
from gateway.traffic.fleet.fleet import Change
from gateway.traffic.fleet.operations import adopt
from gateway.traffic.standing import AccountMemory, ScalingExchange


class Worker:
    """The data plane of one slot, on sockets that the supervisor bound."""

    def __init__(self, message: StartMessage) -> None:
        self._message = message
        self._lent = SupervisorRuntimes(message.settings.runtimes)
        demo = ApiKey(id_of(message.demo) or "", message.demo) if message.demo else None
        table = SharedTable.attach(message.limits, worker=message.limit_slot)
        accounts = AccountMemory(message.accounts, message.account_slots, max(0, message.limit_slot))
        self.plane = DataPlane(
            self._config(message.settings),
            SharedResources(self._lent, demo, table, Path(message.keys), message.certificate, accounts),
        )
        self._sockets = [[socket.socket(fileno=fd) for fd in slot] for slot in message.listeners]
        self._inboxes = [
            (socket.socket(fileno=taking), socket.socket(fileno=giving)) for taking, giving in message.inboxes
        ]
        self._accepting: dict[int, list[tuple[Listeners, SharedSocket]]] = {}
        self._handover: Handover | None = None
        self._change: Change | None = None
        self._warm: dict[str, float] = {}
        self._draining: asyncio.Task[bool] | None = None

    def _config(self, settings: WorkerSettings) -> Config:
        return share(unpack(settings.config), self._message.slot, settings.workers)

    async def start(self) -> None:
        """Open the data plane; `accept` follows. Raises `StartError`."""
        await self.plane.open()
        await self.plane.features.catch_up(self.plane.config)
        await self.plane.open_playground(calls_path(self._message.control))
        if self._message.overrides:
            adopt(self.plane.fleet, self._message.overrides)
        if self._message.rollouts:
            self.plane.features.rollouts.apply(self._message.rollouts)

    # ── the supervisor's commands ─────────────────────────────────────────────────────────────────────

    def accept(self, slots: Collection[int]) -> None:
        """Accept from the sockets of these slots and from no other sockets, and take connections of other workers."""
        if self._draining is not None:
            return
        listeners = self.plane.listeners
        if self._handover is None and self._inboxes:
            self._handover = self._open_handover()
        handover = self._handover
        for slot in [slot for slot in self._accepting if slot not in slots]:
            for server, listener in self._accepting.pop(slot):
                server.leave_socket(listener)
        for slot in slots:
            if slot not in self._accepting and slot < len(self._sockets):
                listening = zip(self._sockets[slot], self._message.kinds, strict=True)
                self._accepting[slot] = [
                    listeners.listen_socket(bound, kind, None if handover is None else handover.member(kind))
                    for bound, kind in listening
                ]

    def _open_handover(self) -> Handover:
        message = self._message
        table = LoadTable(message.loads)
        return Handover(self._inboxes, message.slot, message.limit_slot, table, self.plane.listeners.adopt)

    def release_sockets(self) -> None:
        """Close the sockets of all other slots, before the supervisor closes its own copies."""
        for slot, sockets in enumerate(self._sockets):
            if slot not in self._accepting:
                for bound in sockets:
                    bound.close()

    async def prepare(self, settings: WorkerSettings) -> None:
        """Prepare a new configuration. Raises `FleetError` or `ValueError` and changes nothing then."""
        self.abandon()
        self._lent.addresses, self._warm = settings.runtimes, settings.warm
        self._change = await self.plane.prepare(self._config(settings))

    def commit(self) -> None:
        """Put the prepared configuration in force."""
        change, self._change = self._change, None
        assert change is not None
        self.plane.commit(change, self._warm)
        configure_log(self.plane.config.log)

    def abandon(self) -> None:
        """Discard the prepared configuration, if there is one."""
        change, self._change = self._change, None
        if change is not None:
            self.plane.abandon(change)

    def exchange(self, exchanged: RolloutExchange) -> RolloutExchange:
        """Put shares of rollouts in force, and return the counts since the last exchange."""
        counts = self.plane.features.rollouts.take()
        self.plane.features.rollouts.apply(exchanged.orders)
        return RolloutExchange(counts=tuple(counts))

    def exchange_demand(self, exchanged: ScalingExchange) -> ScalingExchange:
        """Use the replicas of runtimes that run, and return the demand since the last exchange."""
        if exchanged.replicas is not None and exchanged.replicas != self._lent.addresses:
            before, self._lent.addresses = self._lent.addresses, exchanged.replicas
            for pool in {*before, *exchanged.replicas}:
                self.plane.fleet.refresh(pool)
        for standing in exchanged.standings:
            self.plane.fleet.report(standing)
        return ScalingExchange(demands=tuple(demands(self.plane.fleet)))

    def runtimes_in_use(self) -> list[str]:
        """The addresses of runtimes that may still receive requests."""
        return self._lent.in_use()

    async def drain(self) -> None:
        """Stop accepting. Returns when requests in flight have ended or their time has passed."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        await asyncio.shield(self._draining)

    async def _drain(self) -> bool:
        listening = self._sockets
        if self._handover is not None:
            self._handover.close()
        done = self.plane.drain()
        self._sockets, self._accepting = [], {}
        for bound in [bound for slot in listening for bound in slot]:
            bound.close()  # the server closes its copies when it has accepted the waiting connections
        return await done

    async def aclose(self) -> None:
        """Close at once."""
        await self.plane.aclose()
