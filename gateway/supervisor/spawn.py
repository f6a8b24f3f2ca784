"""Workers begin here, with all that they are lent, and what they held is given back when they are gone."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from gateway.supervisor.background import Background
from gateway.supervisor.limit_slots import LimitSlots
from gateway.supervisor.orders import Orders, Terms
from gateway.supervisor.process import WorkerLost, WorkerProcess
from gateway.supervisor.sockets import Sockets
from gateway.telemetry.merge import Tally


class Spawner:
    """`folder` is for their sockets: nobody else may enter it."""

    def __init__(
        self, path: Path, folder: Path, sockets: Sockets, limit_slots: LimitSlots, demo: str | None, tally: Tally
    ) -> None:
        self.overrides = b""
        """What operators have changed in the pools."""
        self._path = path
        self._folder = folder
        self._sockets = sockets
        self._limit_slots = limit_slots
        self._demo = demo
        self._tally = tally
        self._serial = 0
        self._reaping = Background()

    async def begin(self, slots: Sequence[int], terms: Terms) -> list[WorkerProcess]:
        """One for each slot, all ready; or none. Raises `StartError` with a reason of theirs, else `WorkerLost`."""
        fresh = [self._new(slot, terms) for slot in slots]
        try:
            results = await asyncio.gather(*(self._begin(worker) for worker in fresh), return_exceptions=True)
            for failure in results:
                if failure is not None:
                    raise failure
        except BaseException:
            await stop(fresh)
            raise
        return fresh

    def _new(self, slot: int, terms: Terms) -> WorkerProcess:
        self._serial += 1
        orders = Orders(
            slot=slot,
            terms=terms,
            path=str(self._path),
            listeners=self._sockets.numbers(),
            grpc_from=self._sockets.grpc_from,
            control=f"{self._folder}/{slot}-{self._serial}.sock",
            demo=self._demo,
            limits=self._limit_slots.fd,
            overrides=self.overrides,
        )
        return WorkerProcess(self._serial, orders)

    async def _begin(self, worker: WorkerProcess) -> None:
        limit_slot = self._limit_slots.take()
        if limit_slot is None:
            raise WorkerLost("cannot be started: too many others are still leaving")
        inherited = [fd for slot in self._sockets.numbers() for fd in slot]
        try:
            await worker.start(limit_slot, (*inherited, self._limit_slots.fd))
        finally:
            self._reaping.run(self._reap(worker, limit_slot), f"end of worker {worker.slot}")

    async def _reap(self, worker: WorkerProcess, limit_slot: int) -> None:
        if worker.has_begun:
            await worker.ended()
        self._tally.end(worker.serial)
        await self._limit_slots.give_back(limit_slot)

    async def aclose(self) -> None:
        """All of them are gone, and what they held with them."""
        await self._reaping.cancel()


async def stop(workers: Iterable[WorkerProcess]) -> None:
    """End those that run."""
    await asyncio.gather(*(worker.stop() for worker in workers if worker.pid is not None))
