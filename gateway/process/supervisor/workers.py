"""The worker processes: one in each slot, replaced when it ends, and predecessors that still drain."""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from adapters.lasting import lasting
from gateway.background import Background
from gateway.errors import StartError
from gateway.features.placement.local import FIRST_BACKOFF, LONGEST_BACKOFF, STABLE_SECONDS
from gateway.process.supervisor.messages import RolloutExchange, WorkerSettings, decode, encode
from gateway.process.supervisor.process import Reply, WorkerLost, WorkerProcess
from gateway.process.supervisor.sockets import Sockets
from gateway.process.supervisor.spawn import Spawner, stop
from gateway.process.supervisor.stand_in import StandIn
from gateway.process.supervisor.states import spent
from gateway.telemetry.merge import SampleTally
from policies.rollouts.tally import ShareOrder, StratumTally

log = logging.getLogger(__name__)
START_ATTEMPTS = 3
STAND_IN_AFTER = 2.0
"""Seconds without a worker after which clients get an error: before, they wait for the next one."""


class Slot:
    """A place for one worker."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: WorkerProcess | None = None
        self.restarts = 0
        self.last_end = ""
        self.keeper: asyncio.Task[None] | None = None


class Workers:
    """Fills the slots. Hold `lock` to change workers or their settings."""

    def __init__(self, spawner: Spawner, sockets: Sockets, tally: SampleTally, stand_in: StandIn) -> None:
        """`stand_in` answers clients while no worker serves."""
        self.lock = asyncio.Lock()
        self.settings: WorkerSettings
        self.slots: list[Slot] = []
        self.accepting = False
        """Whether the workers accept requests: from the end of `start` to the begin of `drain`."""
        self.leaving: set[WorkerProcess] = set()
        self.drain_seconds = 0.0
        self.spent: list[Any] = []
        """The spend of tenants through workers that have ended."""
        self._last_counts: list[StratumTally] = []
        """The last counts of rollouts of workers that have ended."""
        self._spawner = spawner
        self._sockets = sockets
        self._tally = tally
        self._stand_in = stand_in
        self._assigning = asyncio.Lock()
        self._drains = Background()

    @property
    def http_address(self) -> tuple[str, int]:
        """The address of the HTTP listeners."""
        return self._sockets.address

    @property
    def ready(self) -> list[WorkerProcess]:
        """The workers that serve, by slot."""
        workers = [slot.worker for slot in self.slots]
        return [worker for worker in workers if worker is not None and worker.pid is not None]

    @property
    def everyone(self) -> list[WorkerProcess]:
        """The workers that serve and those that drain."""
        return [*self.ready, *(worker for worker in self.leaving if worker.pid is not None)]

    def slot_states(self) -> list[tuple[int, bool, int]]:
        """Number, whether a worker runs, and restarts of each slot."""
        return [(slot.number, slot.worker is not None, slot.restarts) for slot in self.slots]

    # ── filling slots ─────────────────────────────────────────────────────────────────────────────────

    async def start(self, settings: WorkerSettings) -> None:
        """Fill every slot. Retries failed slots while others serve. Raises `StartError` if all fail."""
        self.settings = settings
        self._sockets.grow(settings.workers)
        self.slots = [Slot(number) for number in range(settings.workers)]
        reasons: list[str] = []
        for attempt in range(START_ATTEMPTS):
            if attempt:
                await asyncio.sleep(FIRST_BACKOFF * 2**attempt)
            async with self.lock:
                done = await asyncio.gather(*(self._spawn([s], settings) for s in self.slots), return_exceptions=True)
            failures = [result for result in done if result is not None]
            for failure in failures:
                if not isinstance(failure, StartError | WorkerLost):
                    raise failure
            if len(failures) < len(done):
                self._keep_filled(self.slots)
                self.accepting = True
                return
            if reported := [str(failure) for failure in failures if isinstance(failure, StartError)]:
                raise StartError(reported[0])
            reasons = [f"worker {number} {failure}" for number, failure in enumerate(failures)]
        raise StartError("no worker process starts: " + ", ".join(reasons))

    async def replace(self, slots: Sequence[Slot], settings: WorkerSettings) -> None:
        """Replace the workers of these slots, all or none. Predecessors drain when all successors serve.

        Call with `lock` held. Raises `StartError` or `WorkerLost`.
        """
        try:
            self._sockets.grow(settings.workers)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None
        await self._spawn(slots, settings)

    async def _spawn(self, slots: Sequence[Slot], settings: WorkerSettings) -> None:
        fresh = await self._spawner.start([slot.number for slot in slots], settings)
        before = [slot.worker for slot in slots]
        for slot, worker in zip(slots, fresh, strict=True):
            slot.worker = worker
        await self.assign()
        for predecessor in before:
            if predecessor is not None:
                self._retire(predecessor)

    async def assign(self) -> None:
        """Assign each socket to the worker of its slot, or to another worker while the slot is empty."""
        async with self._assigning:
            ready = self.ready
            shares: dict[WorkerProcess, list[int]] = {worker: [] for worker in ready}
            own = {worker.slot: worker for worker in ready}
            for number in range(len(self._sockets.slots) if ready else 0):
                shares[own.get(number) or ready[number % len(ready)]].append(number)
            if ready:
                await self._stand_in.aclose()
            for worker, numbers in shares.items():
                with suppress(WorkerLost):  # the worker is about to be replaced
                    await worker.call("PUT", "/accept", msgspec.json.encode(numbers))

    async def operate(self, operation: bytes) -> Reply:
        """Apply an operator's change in one worker and copy the result to all other and future workers.

        Call with `lock` held. Raises `WorkerLost` if no worker serves.
        """
        for worker in self.ready:
            with suppress(WorkerLost):
                reply = await worker.call("POST", "/operate", operation)
                self._spawner.overrides = (await worker.call("GET", "/overrides")).body
                others = [other for other in self.ready if other is not worker]
                updates = (other.call("PUT", "/overrides", self._spawner.overrides) for other in others)
                await asyncio.gather(*updates, return_exceptions=True)  # a successor starts with the overrides
                return reply
        raise WorkerLost("no worker serves")

    async def exchange(self, orders: Sequence[ShareOrder]) -> list[StratumTally]:
        """Put shares of rollouts in force in every worker and in future ones. Returns their counts."""
        self._spawner.rollouts = tuple(orders)
        everyone = self.everyone
        replies = await asyncio.gather(*(self._exchange(worker) for worker in everyone))
        counts, self._last_counts = self._last_counts, []
        return [*counts, *(each for reply in replies for each in reply)]

    async def _exchange(self, worker: WorkerProcess) -> tuple[StratumTally, ...]:
        """The counts of one worker; none of a worker that has ended, a loss that is the same for both arms."""
        try:
            reply = await worker.call("POST", "/rollouts", encode(RolloutExchange(self._spawner.rollouts)))
        except WorkerLost:
            return ()
        return decode(reply.body, RolloutExchange).counts if reply.status == 200 else ()

    # ── refilling slots ───────────────────────────────────────────────────────────────────────────────

    def _keep_filled(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            refill = partial(self._refill_forever, slot)
            slot.keeper = asyncio.create_task(lasting(name := f"slot {slot.number}", refill), name=name)

    async def _refill_forever(self, slot: Slot) -> None:
        """Start another worker each time that the slot is empty, until cancelled."""
        backoff = FIRST_BACKOFF
        while True:
            worker = slot.worker
            if worker is not None:
                how = await worker.ended()
                if slot.worker is not worker:
                    continue  # the worker was replaced
                if time.monotonic() - worker.since > STABLE_SECONDS:
                    backoff = FIRST_BACKOFF
                slot.worker, slot.last_end = None, how
                log.error("worker %d %s: the next one starts in %.1f s", slot.number, how, backoff)
                await self.assign()
                asyncio.get_running_loop().call_later(STAND_IN_AFTER, self._answer_clients)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)
            await self._refill(slot)

    def _answer_clients(self) -> None:
        """Answer clients here if no worker serves."""
        if self.accepting and not self.ready:
            self._stand_in.open()

    async def _refill(self, slot: Slot) -> None:
        async with self.lock:
            if slot.worker is not None:
                return
            slot.restarts += 1
            try:
                await self._spawn([slot], self.settings)
            except (StartError, WorkerLost) as error:
                slot.last_end = str(error)
                log.error("worker %d cannot start: %s", slot.number, error)
                self._answer_clients()

    async def resize(self, settings: WorkerSettings) -> None:
        """Replace all workers by as many as the settings have. Call with `lock` held. Raises as `replace` does."""
        remaining = self.slots[: settings.workers]
        added = [Slot(number) for number in range(len(self.slots), settings.workers)]
        surplus = self.slots[settings.workers :]
        await self.replace([*remaining, *added], settings)
        self.settings = settings
        self.slots = [*remaining, *added]
        self._keep_filled(added)
        for slot in surplus:
            assert slot.keeper is not None
            slot.keeper.cancel()
            if slot.worker is not None:
                self._retire(slot.worker)
        await self.assign()

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    def _retire(self, worker: WorkerProcess) -> None:
        self.leaving.add(worker)
        self._drains.once(self._drain_and_stop(worker), f"drain of worker {worker.slot}")

    async def _drain_and_stop(self, worker: WorkerProcess) -> None:
        try:
            await self._drain(worker)
            await worker.stop()
        finally:
            self.leaving.discard(worker)

    async def _drain(self, worker: WorkerProcess) -> None:
        with suppress(WorkerLost):
            self._tally.take(worker.serial, await worker.drain(self.drain_seconds))
            self._last_counts += await self._exchange(worker)
            state = msgspec.json.decode((await worker.call("GET", "/state")).body)
            self.spent = spent([self.spent, state["tenants"]])

    async def drain(self) -> None:
        """Drain all workers at the same time, and start no more."""
        self.accepting = False
        await self._cancel_keepers()
        await self._stand_in.aclose()
        ready = self.ready
        await asyncio.gather(*(worker.call("POST", "/release-sockets") for worker in ready), return_exceptions=True)
        self._sockets.close()  # one worker now owns each socket, and accepts waiting connections before it closes
        await asyncio.gather(*self._drains.tasks, *(self._drain(worker) for worker in ready))

    async def aclose(self) -> None:
        """Stop all workers now."""
        self.accepting = False
        await self._cancel_keepers()
        await self._stand_in.aclose()
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
