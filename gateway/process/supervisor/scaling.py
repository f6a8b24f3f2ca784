"""Replicas of runtimes under a supervisor: the supervisor starts and stops them, all workers use them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from config.schema.config import Config
from gateway.process.supervisor.messages import decode, encode
from gateway.process.supervisor.process import WorkerLost, WorkerProcess
from gateway.process.supervisor.runtimes import Prepared, SharedRuntimes, addresses
from gateway.process.supervisor.workers import Workers
from gateway.traffic.fleet.runtime import OwnRuntime
from gateway.traffic.standing import PoolDemand, PoolStanding, ScalingExchange


class WorkersActuator:
    """The actuator of a supervisor. Hold `changing` while a reload replaces runtimes."""

    def __init__(
        self,
        config: Callable[[], Config],
        workers: Workers,
        runtimes: SharedRuntimes,
        commit: Callable[[Prepared], None],
    ) -> None:
        """`commit` puts prepared runtimes in force, and retires the others."""
        self.changing = asyncio.Lock()
        self._config = config
        self._workers = workers
        self._runtimes = runtimes
        self._commit = commit

    async def exchange(self, standings: Sequence[PoolStanding]) -> list[PoolDemand]:
        replicas = None if self.changing.locked() else addresses(self._runtimes.in_force)
        message = encode(ScalingExchange(replicas=replicas, standings=tuple(standings)))
        replies = await asyncio.gather(*(self._exchange(worker, message) for worker in self._workers.everyone))
        return [demand for reply in replies for demand in reply]

    async def _exchange(self, worker: WorkerProcess, message: bytes) -> tuple[PoolDemand, ...]:
        with suppress(WorkerLost):
            reply = await worker.call("POST", "/scaling", message)
            if reply.status == 200:
                return decode(reply.body, ScalingExchange).demands
        return ()

    def running(self, pool: str) -> Mapping[int, OwnRuntime]:
        return {number: runtime for (name, number), runtime in self._runtimes.in_force.items() if name == pool}

    def occupies(self, pool: str) -> bool:
        return self._runtimes.occupies(pool)

    async def scale(self, pool: str, numbers: tuple[int, ...]) -> None:
        """A reload in progress comes first."""
        async with self.changing:
            self._runtimes.numbers.choose(pool, numbers)
            prepared = self._runtimes.prepare(self._config())
            settings = msgspec.structs.replace(self._workers.settings, runtimes=addresses(prepared))
            self._workers.settings = settings
            self._commit(prepared)
        await self.exchange(())
