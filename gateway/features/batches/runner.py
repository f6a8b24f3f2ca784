"""Takes tasks, runs them, and raises their beats. It runs in each process that serves requests, as bounded tasks of its
loop: blocking calls are in threads, and large texts are decoded in other processes."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from adapters import offload
from gateway.features.batches.examination import Examination
from gateway.features.batches.finishing import Finishing
from gateway.features.batches.rows import batch_folder, file_object
from gateway.features.batches.shard import ShardRun
from gateway.features.batches.storage import StorageError
from gateway.features.batches.tasks import EXAMINE, FINISH, Claim, Fenced
from gateway.features.batches.work import BatchContext, Unit
from gateway.state.errors import StateError
from gateway.state.insist import Outages

log = logging.getLogger(__name__)
POLL = 1.0
"""Seconds between two looks for tasks."""
LONGEST_PAUSE = 60.0
"""Seconds until a task that has failed again and again is tried again."""
MOST_TASKS = 4
MOST_STUCK = 16
"""Tasks that wait for the storage and take no place of others: one object may be damaged, and all others good."""
MOST_PARKED = 256
"""Shards that wait for providers at the same time."""
SWEEP = 600.0
PROGRESS = 5.0
"""Seconds between two readings of the progress of all batches."""
CLOSING = 10.0
"""Seconds in which tasks may write their results when the process ends."""


class BatchRunner:
    """`run` until cancelled, then `aclose`. `wake` lets it look for tasks at once."""

    def __init__(self, context: BatchContext) -> None:
        self._context = context
        self._units: dict[asyncio.Task[None], Unit] = {}
        self._pauses: dict[str, float] = {}
        """Seconds after the last failure of each task that fails."""
        self._wake = asyncio.Event()
        self._swept_at = 0.0
        self._read_at = float("-inf")
        self.progress: list[tuple[str, str, int, int]] = []
        """Tenant, state, lines and ended lines of each unfinished batch, of all processes."""
        self._draining = False
        self._outages = Outages("batches", StateError, meanwhile="no further line begins")

    def wake(self) -> None:
        """Look for tasks at once."""
        self._wake.set()

    async def run(self) -> None:
        """Take and run tasks until cancelled."""
        while True:
            with self._outages.noting("taking tasks"):
                await self._turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._wake.wait()
            self._wake.clear()

    def drain(self) -> None:
        """Begin no further line, and release the tasks when their lines in flight have ended."""
        self._draining = True
        for unit in self._units.values():
            unit.closing = True

    async def aclose(self) -> None:
        """Write the results of ended lines, and release the tasks."""
        self.drain()
        for unit in self._units.values():
            unit.hurries = True
        if self._units:
            await asyncio.wait(list(self._units), timeout=CLOSING)
        tasks, claims = list(self._units), [unit.claim for unit in self._units.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(StateError):
            await self._context.durable.in_thread(self._context.durable.leases.release, claims)
        self._context.gate.close()

    async def _turn(self) -> None:
        leases = self._context.durable.leases
        if self._units:
            units = list(self._units.values())
            states = await self._context.durable.in_thread(leases.beat, [unit.claim for unit in units])
            for task, unit in list(self._units.items()):
                key = (unit.claim.spec.id, unit.claim.number)
                if key in states:
                    unit.status = states[key]
                elif unit in units and not task.done() and not unit.saving_last:
                    task.cancel()  # another process has taken it over
        parked = sum(unit.parked for unit in self._units.values())
        failing = self._context.durable.insistence.failing
        stuck = sum(not unit.parked and unit.name in failing for unit in self._units.values())
        free = min(MOST_TASKS - (len(self._units) - parked - min(stuck, MOST_STUCK)), MOST_PARKED - parked)
        if free > 0 and not self._draining:
            for claim in await self._context.durable.in_thread(leases.claim, free):
                self._begin(claim)
        if time.monotonic() - self._read_at >= PROGRESS:
            self._read_at = time.monotonic()
            self.progress = await self._context.durable.in_thread(self._context.durable.store.active)
        await self._sweep()

    def _begin(self, claim: Claim) -> None:
        kinds: Mapping[int, type[Unit]] = {EXAMINE: Examination, FINISH: Finishing}
        unit = kinds.get(claim.number, ShardRun)(claim, self._context)
        unit.closing = self._draining
        task = asyncio.create_task(self._run(unit), name=f"batch {unit.name}")
        self._units[task] = unit
        task.add_done_callback(self._ended)

    async def _run(self, unit: Unit) -> None:
        offload.TENANT.set(unit.claim.spec.tenant)
        try:
            await self._first_status(unit)
            await unit.run()
            self._pauses.pop(unit.name, None)
            if unit.closing:
                await self._context.durable.in_thread(self._context.durable.leases.release, [unit.claim])
        except Fenced:
            log.info("batches: another process runs %s", unit.name)
        except asyncio.CancelledError:
            raise
        except Exception:
            if len(self._pauses) >= MOST_PARKED:
                self._pauses.clear()
            pause = self._pauses[unit.name] = min(LONGEST_PAUSE, 2 * self._pauses.get(unit.name, POLL / 2))
            log.exception("batches: %s failed and will be tried again in %g s", unit.name, pause)
            unit.parked = True  # it takes no place of other tasks
            while pause > 0 and not unit.closing:
                await asyncio.sleep(min(pause, POLL))
                pause -= POLL
            with suppress(StateError):
                await self._context.durable.in_thread(self._context.durable.leases.release, [unit.claim])

    async def _first_status(self, unit: Unit) -> None:
        states = await self._context.durable.insist(unit.name, self._context.durable.leases.beat, [unit.claim])
        if not states:
            raise Fenced
        (unit.status,) = states.values()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._units[task]
        self._wake.set()

    async def _sweep(self) -> None:
        """Delete what has expired: content first, so that a crash leaves no content without a row."""
        if time.monotonic() - self._swept_at < SWEEP and self._swept_at:
            return
        self._swept_at = time.monotonic()
        durable, now = self._context.durable, self._context.wall()
        try:
            while ids := await durable.in_thread(durable.store.expired_files, now, 100):
                for id_ in ids:
                    await durable.in_thread(durable.storage.delete, file_object(id_))
                await durable.in_thread(durable.store.forget_files, ids)
            for batch in await durable.in_thread(durable.store.forget_batches, now):
                await durable.in_thread(durable.storage.delete_folder, batch_folder(batch.spec.id))
        except StorageError as error:
            log.warning("batches: expired files are not deleted: %s", error)
