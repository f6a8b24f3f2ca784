"""The workers: one in each slot, another when it dies, and those that are leaving."""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from gateway.app import StartError
from gateway.placement.local import FIRST_BACKOFF, LONGEST_BACKOFF, STABLE_SECONDS
from gateway.supervisor.background import Background
from gateway.supervisor.orders import Terms
from gateway.supervisor.process import Reply, WorkerLost, WorkerProcess
from gateway.supervisor.sockets import Sockets
from gateway.supervisor.spawn import Spawner, stop
from gateway.supervisor.states import spent
from gateway.telemetry.merge import Tally

log = logging.getLogger(__name__)
START_ATTEMPTS = 3


class Slot:
    """What a worker fills."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: WorkerProcess | None = None
        self.restarts = 0
        self.last_end = ""
        self.keeper: asyncio.Task[None] | None = None


class Workers:
    """Keeps the slots filled. `lock` is held by whoever changes who works, or under which terms."""

    def __init__(self, spawner: Spawner, sockets: Sockets, tally: Tally) -> None:
        self.lock = asyncio.Lock()
        self.terms: Terms
        self.slots: list[Slot] = []
        self.leaving: set[WorkerProcess] = set()
        self.drain_seconds = 0.0
        self.spent: list[Any] = []
        """By tenants, through workers that are gone."""
        self._spawner = spawner
        self._sockets = sockets
        self._tally = tally
        self._assigning = asyncio.Lock()
        self._drains = Background()

    @property
    def ready(self) -> list[WorkerProcess]:
        """Those that serve, by slot."""
        found = [slot.worker for slot in self.slots]
        return [worker for worker in found if worker is not None and worker.pid is not None]

    @property
    def everyone(self) -> list[WorkerProcess]:
        """Those that leave, too."""
        return [*self.ready, *(worker for worker in self.leaving if worker.pid is not None)]

    def slot_states(self) -> list[tuple[int, bool, int]]:
        """Number, whether a worker runs, and restarts of each slot."""
        return [(slot.number, slot.worker is not None, slot.restarts) for slot in self.slots]

    # ── filling slots ─────────────────────────────────────────────────────────────────────────────────

    async def start(self, terms: Terms) -> None:
        """Fill every slot; one that cannot be is tried again while others serve. Raises `StartError` if all fail."""
        self.terms = terms
        self._sockets.grow(terms.workers)
        self.slots = [Slot(number) for number in range(terms.workers)]
        reasons: list[str] = []
        for attempt in range(START_ATTEMPTS):
            if attempt:
                await asyncio.sleep(FIRST_BACKOFF * 2**attempt)
            async with self.lock:
                done = await asyncio.gather(*(self._spawn([s], terms) for s in self.slots), return_exceptions=True)
            failures = [result for result in done if result is not None]
            for failure in failures:
                if not isinstance(failure, StartError | WorkerLost):
                    raise failure
            if len(failures) < len(done):
                self._keep_filled(self.slots)
                return
            told = [str(failure) for failure in failures if isinstance(failure, StartError)]
            if told:
                raise StartError(told[0])
            reasons = [f"worker {number} {failure}" for number, failure in enumerate(failures)]
        raise StartError("no worker comes up: " + ", ".join(reasons))

    async def replace(self, slots: Sequence[Slot], terms: Terms) -> None:
        """Successors for all of these or for none; predecessors leave when all successors serve.

        With the lock held. Raises `StartError` or `WorkerLost`.
        """
        try:
            self._sockets.grow(terms.workers)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None
        await self._spawn(slots, terms)

    async def _spawn(self, slots: Sequence[Slot], terms: Terms) -> None:
        fresh = await self._spawner.begin([slot.number for slot in slots], terms)
        before = [slot.worker for slot in slots]
        for slot, worker in zip(slots, fresh, strict=True):
            slot.worker = worker
        await self.assign()
        for predecessor in before:
            if predecessor is not None:
                self._retire(predecessor)

    async def assign(self) -> None:
        """Every socket has a worker that accepts from it: its own, or for as long as that is away another one."""
        async with self._assigning:
            ready = self.ready
            shares: dict[WorkerProcess, list[int]] = {worker: [] for worker in ready}
            own = {worker.slot: worker for worker in ready}
            for number in range(len(self._sockets.slots) if ready else 0):
                shares[own.get(number) or ready[number % len(ready)]].append(number)
            for worker, numbers in shares.items():
                with suppress(WorkerLost):  # it is about to be replaced
                    await worker.ask("PUT", "/accept", msgspec.json.encode(numbers))

    async def operate(self, operation: bytes) -> Reply:
        """Have a worker change its pools, and all others and all to come take over what it did. With the lock held.

        Raises `WorkerLost` when there is none.
        """
        for worker in self.ready:
            with suppress(WorkerLost):
                reply = await worker.ask("POST", "/operate", operation)
                self._spawner.overrides = (await worker.ask("GET", "/overrides")).body
                others = [other for other in self.ready if other is not worker]
                told = (other.ask("PUT", "/overrides", self._spawner.overrides) for other in others)
                await asyncio.gather(*told, return_exceptions=True)  # whoever is gone is followed by one that knows
                return reply
        raise WorkerLost("no worker serves")

    # ── keeping them filled ───────────────────────────────────────────────────────────────────────────

    def _keep_filled(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            slot.keeper = asyncio.create_task(self._keep(slot), name=f"slot {slot.number}")

    async def _keep(self, slot: Slot) -> None:
        """Another worker whenever there is none, until cancelled."""
        backoff = FIRST_BACKOFF
        while True:
            worker = slot.worker
            if worker is not None:
                how = await worker.ended()
                if slot.worker is not worker:
                    continue  # its successor was there before its end
                if time.monotonic() - worker.since > STABLE_SECONDS:
                    backoff = FIRST_BACKOFF
                slot.worker, slot.last_end = None, how
                log.error("worker %d %s; another in %.1f s", slot.number, how, backoff)
                await self.assign()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)
            await self._refill(slot)

    async def _refill(self, slot: Slot) -> None:
        async with self.lock:
            if slot.worker is not None:
                return
            slot.restarts += 1
            try:
                await self._spawn([slot], self.terms)
            except (StartError, WorkerLost) as error:
                slot.last_end = str(error)
                log.error("worker %d does not start: %s", slot.number, error)

    async def resize(self, terms: Terms) -> None:
        """Everyone anew under these terms, be they more or fewer. With the lock held. Raises as `replace` does."""
        kept = self.slots[: terms.workers]
        added = [Slot(number) for number in range(len(self.slots), terms.workers)]
        surplus = self.slots[terms.workers :]
        await self.replace([*kept, *added], terms)
        self.terms = terms
        self.slots = [*kept, *added]
        self._keep_filled(added)
        for slot in surplus:
            assert slot.keeper is not None
            slot.keeper.cancel()
            if slot.worker is not None:
                self._retire(slot.worker)
        await self.assign()

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────

    def _retire(self, worker: WorkerProcess) -> None:
        self.leaving.add(worker)
        self._drains.run(self._drain_and_stop(worker), f"drain of worker {worker.slot}")

    async def _drain_and_stop(self, worker: WorkerProcess) -> None:
        try:
            await self._drained(worker)
            await worker.stop()
        finally:
            self.leaving.discard(worker)

    async def _drained(self, worker: WorkerProcess) -> None:
        with suppress(WorkerLost):
            self._tally.take(worker.serial, await worker.drain(self.drain_seconds))
            state = msgspec.json.decode((await worker.ask("GET", "/state")).body)
            self.spent = spent([self.spent, state["tenants"]])

    async def drain(self) -> None:
        """Everyone ends what is under way, at the same time; nobody comes any more."""
        await self._cancel_keepers()
        staying = self.ready
        await asyncio.gather(*(worker.ask("POST", "/let-go") for worker in staying), return_exceptions=True)
        self._sockets.close()  # now each is one worker's alone, who takes what waits in it before it closes
        await asyncio.gather(*self._drains.tasks, *(self._drained(worker) for worker in staying))

    async def aclose(self) -> None:
        """End everyone now."""
        await self._cancel_keepers()
        everyone = self.everyone
        await self._drains.cancel()
        await stop(everyone)
        await self._spawner.aclose()
        self._sockets.close()

    async def _cancel_keepers(self) -> None:
        keepers = [slot.keeper for slot in self.slots if slot.keeper is not None]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
