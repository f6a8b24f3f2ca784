"""Starts worker processes, and releases their resources when they end."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from gateway.background import Background
from gateway.process.supervisor.limit_slots import LimitSlots
from gateway.process.supervisor.loads import LoadTable
from gateway.process.supervisor.messages import StartMessage, WorkerSettings
from gateway.process.supervisor.process import WorkerLost, WorkerProcess
from gateway.process.supervisor.sockets import Sockets
from gateway.telemetry.merge import SampleTally
from gateway.traffic.fleet.server_tls import ServerFiles
from policies.rollouts.tally import ShareOrder


class Spawner:
    """`folder` holds the control sockets and a sealed copy of the keys: only this user may enter it."""

    def __init__(
        self, folder: Path, sockets: Sockets, limit_slots: LimitSlots, loads: LoadTable, accounts: int,
        demo: str | None, tally: SampleTally, certificate: Callable[[], ServerFiles | None],
        lend_keys: Callable[[Path], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self.overrides = b""
        """Changes to pools by operators, for workers to start with."""
        self.rollouts: tuple[ShareOrder, ...] = ()
        """The shares of rollouts, for workers to start with."""
        self._folder = folder
        self._keys = folder / "keys.sealed"
        self._sockets = sockets
        self._limit_slots = limit_slots
        self._loads = loads
        self._accounts = accounts
        self._demo = demo
        self._tally = tally
        self._certificate = certificate
        self._lend_keys = lend_keys
        self._serial = 0
        self._reaping = Background()

    async def start(self, slots: Sequence[int], settings: WorkerSettings) -> list[WorkerProcess]:
        """Start a worker for each slot, all or none. Raises `StartError` with a reported error, else `WorkerLost`."""
        await self._lend_keys(self._keys)
        fresh = [self._new(slot, settings) for slot in slots]
        try:
            results = await asyncio.gather(*(self._start(worker) for worker in fresh), return_exceptions=True)
            for failure in results:
                if failure is not None:
                    raise failure
        except BaseException:
            await stop(fresh)
            raise
        return fresh

    def _new(self, slot: int, settings: WorkerSettings) -> WorkerProcess:
        self._serial += 1
        message = StartMessage(
            slot=slot,
            settings=settings,
            listeners=self._sockets.numbers(),
            kinds=self._sockets.kinds,
            inboxes=self._sockets.inbox_numbers(),
            loads=self._loads.fd,
            accounts=self._accounts,
            account_slots=self._limit_slots.slots,
            control=f"{self._folder}/{slot}-{self._serial}.sock",
            demo=self._demo,
            keys=str(self._keys),
            certificate=self._certificate(),
            limits=self._limit_slots.fd,
            overrides=self.overrides,
            rollouts=self.rollouts,
        )
        return WorkerProcess(self._serial, message)

    async def _start(self, worker: WorkerProcess) -> None:
        limit_slot = self._limit_slots.acquire()
        if limit_slot is None:
            raise WorkerLost("cannot start: too many other workers are still draining")
        inherited = [fd for slot in (*self._sockets.numbers(), *self._sockets.inbox_numbers()) for fd in slot]
        try:
            await worker.start(limit_slot, (*inherited, self._limit_slots.fd, self._loads.fd, self._accounts))
        finally:
            self._reaping.once(self._reap(worker, limit_slot), f"end of worker {worker.slot}")

    async def _reap(self, worker: WorkerProcess, limit_slot: int) -> None:
        if worker.has_started:
            await worker.ended()
        self._loads.clear(limit_slot)
        if os.fstat(self._accounts).st_size:
            from gateway.traffic.accounts.table import AccountTable

            AccountTable.release(self._accounts, limit_slot, self._limit_slots.slots)
        self._tally.end(worker.serial)
        await self._limit_slots.release(limit_slot)

    async def aclose(self) -> None:
        """Stop releasing resources: all workers have ended."""
        await self._reaping.cancel()


async def stop(workers: Iterable[WorkerProcess]) -> None:
    """Stop the workers that run."""
    await asyncio.gather(*(worker.stop() for worker in workers if worker.pid is not None))
