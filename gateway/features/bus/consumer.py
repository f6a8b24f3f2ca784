"""One binding in one process: receives messages, runs them, and ends them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from urllib.parse import unquote

from adapters.brokers.base import (
    BrokerClient,
    BrokerDelivery,
    BrokerMessage,
    BrokerSubscription,
    BrokerUnavailable,
    MessageRejected,
    SubscriptionPlan,
)
from adapters.errors import CapacityError
from adapters.lasting import lasting
from adapters.wire.cloudevents import CloudEvent, EnvelopeError, decode
from config.schema.bus import BindingConfig
from gateway.features.bus.answers import AnswerMessages
from gateway.features.bus.claims import Claims
from gateway.features.bus.done.table import DONE, DoneTable, DoneTableUnavailable
from gateway.features.bus.ending import Endings, Replacements
from gateway.features.bus.opening import Opener, Unanswerable
from gateway.features.bus.running import MessageRequests, MessageRunner
from gateway.features.bus.work import BindingCounts, DeadReason, MessageEnd, MessageWork
from gateway.features.stored.keeper import Keeper
from gateway.request.core import Core
from gateway.request.snapshot import Snapshot
from gateway.state.insist import Insistence
from gateway.traffic.load import load_of
from policies.batches.lines import TENSORS
from policies.bus import KeyOrder, room_of

CANCELS_PATIENCE = 1.0
log = logging.getLogger(__name__)
PATIENCE = 0.5
"""Seconds in which a poll of the broker waits for a message."""
LOOK = 0.05
"""Seconds between two looks for free places while there is none."""
ENDING = 3
"""Messages that may be ended at the same time, for each that may run."""
LAG_EVERY = 5.0
OPENINGS = 10
"""Attempts to open a message, a second apart, while too many large bodies wait for their decoder."""
CLOSING = 5.0
"""Seconds for the last calls of a binding when the process ends."""


async def watch_cancels(
    topic: str, client: BrokerClient, insist: Insistence, cancel: Callable[[CloudEvent], None]
) -> None:
    """Pass each event of a topic to `cancel`, until cancelled. Every process reads all events."""
    while True:
        inbox = await insist("cancellations", lambda: client.listen(topic))
        try:
            while True:
                for delivery in await inbox.receive(CANCELS_PATIENCE):
                    try:
                        event = decode(delivery.headers, delivery.body)
                    except EnvelopeError:
                        continue
                    if event is not None:
                        cancel(event)
        except BrokerUnavailable:
            continue
        finally:
            await inbox.aclose()


class FreePlaces:
    """How many more messages of a binding may be received."""

    def __init__(self, binding: BindingConfig, snapshot: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        self._concurrency = binding.concurrency
        match = TENSORS.fullmatch(binding.path)
        self._model = binding.model if match is None or binding.paths else unquote(match[1])
        self._snapshot = snapshot
        self._clock = clock

    def count(self, in_work: int) -> int:
        """The number of messages beside `in_work` messages."""
        if in_work >= self._concurrency:
            return 0
        snapshot = self._snapshot()
        load = load_of(snapshot.pools, snapshot.pools_of(self._model), self._clock())
        return room_of(load, in_work, self._concurrency)


class Draining(Exception):
    """The process ends: a message that waits is released."""


class BindingConsumer:
    """`run` until cancelled; `drain` and `aclose` at the end."""

    def __init__(
        self, binding: BindingConfig, client: BrokerClient, core: Core, keeper: Keeper | None, table: DoneTable
    ) -> None:
        self.binding = binding
        self.counts = BindingCounts()
        self.insist = Insistence(f"bus {binding.name}", BrokerUnavailable, DoneTableUnavailable)
        self._client = client
        self._now = core.clock
        self._opener = Opener(binding, core, core.clock)
        self._places = FreePlaces(binding, lambda: core.snapshot, core.clock)
        self._claims = Claims(table, self.insist, binding.takeover, core.clock)
        self._table = table
        self._writer = AnswerMessages(binding, core.wall)
        requests = MessageRequests(binding, core, keeper)
        self.runner = MessageRunner(binding, requests, self._writer, self._publish, self._pause, core.clock)
        self._order = KeyOrder[MessageWork]()
        self._in_work: dict[str, MessageWork] = {}
        self._cancelled = set[str]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._freed = asyncio.Event()
        self._draining = asyncio.Event()
        self._subscription: BrokerSubscription | None = None
        self.endings: Endings | None = None
        self.held = 0
        """Deliveries that are not settled."""
        self.lag: int | None = None

    @property
    def available(self) -> bool:
        """Whether the broker and the table of ids answer."""
        return self._subscription is not None and self.insist.available

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Consume until cancelled."""
        binding = self.binding
        plan = SubscriptionPlan(
            binding.topic, binding.group, binding.start, binding.concurrency, binding.takeover,
            retained=(binding.reply.topic, binding.dead_letters),
        )  # fmt: skip
        if self._subscription is None:  # a second run continues the first one
            await self.insist("connecting", self._client.open)
            self._open(await self.insist("subscribing", lambda: self._client.subscribe(plan)))
        assert self._subscription is not None
        await self._receive(self._subscription)

    def _open(self, subscription: BrokerSubscription) -> None:
        binding, self._subscription = self.binding, subscription
        self.endings = Endings(
            self._client, subscription, self._claims, Replacements(binding, self._writer, self.runner), self.insist,
            ended=self._ended, lost=self._lost, settled=self._settled,
        )  # fmt: skip
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "ending": self.endings.run,
            "renewing": lambda: self._renew(subscription),
            "reading the lag": lambda: self._watch_lag(subscription),
        }
        if (topic := binding.cancels) is not None:
            works["reading cancellations"] = lambda: watch_cancels(topic, self._client, self.insist, self._cancel)
        name = f"bus {binding.name}"
        self._loops = [asyncio.create_task(lasting(f"{name}: {part}", work)) for part, work in works.items()]

    async def drain(self) -> None:
        """Receive no further message; wait for those in work. A message that waits for another attempt is released."""
        self._draining.set()
        while self._tasks or (self.endings is not None and self.endings.size):
            self._freed.clear()
            await self._until_freed()

    async def aclose(self) -> None:
        """Release what is in work, and leave the group."""
        self._draining.set()
        tasks = [*self._tasks, *self._loops]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError, BrokerUnavailable, DoneTableUnavailable):
            async with asyncio.timeout(CLOSING):
                await self._release()
        with suppress(TimeoutError, BrokerUnavailable):
            async with asyncio.timeout(CLOSING):
                if self._subscription is not None:
                    await self._subscription.aclose()
                await self._client.aclose()

    async def _release(self) -> None:
        works = list(self._in_work.values())
        if works and self._subscription is not None:
            await self._table.release([work.id for work in works])
            await self._subscription.release([delivery for work in works for delivery in work.deliveries])

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────

    async def _receive(self, subscription: BrokerSubscription) -> None:
        while not self._draining.is_set():
            room = self._room()
            if not room:
                self._freed.clear()
                await self._until_freed()
                room = self._room()
            patience = PATIENCE if room else 0.0
            deliveries = await self.insist("receiving", lambda: subscription.receive(room, patience))  # noqa: B023
            if deliveries:
                await self._begin(deliveries)

    def _room(self) -> int:
        """Messages that may be received. Those that are being ended leave their places to others, within a bound."""
        assert self.endings is not None
        ending = min(self.endings.size, ENDING * self.binding.concurrency)
        return self._places.count(self.held - ending)

    async def _until_freed(self) -> None:
        """Wait until a message is settled, for a short time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await self._freed.wait()

    async def _begin(self, deliveries: Sequence[BrokerDelivery]) -> None:
        new: list[MessageWork] = []
        for delivery in deliveries:
            self.counts.received(delivery)
            self.held += 1
            try:
                work = await self._opened(delivery)
                if (same := self._in_work.get(work.id)) is not None:
                    same.deliveries.append(delivery)
                    continue
                self._opener.check_count(delivery)
            except Unanswerable as error:
                self._reject(delivery, error.reason)
                continue
            except Exception:  # such as a large body that ends its decoder: the messages after it are received
                log.exception("bus %s: a message cannot be opened", self.binding.name)
                self._reject(delivery, DeadReason("internal_error", "The gateway failed to open the message."))
                continue
            self._in_work[work.id] = work
            new.append(work)
        for work, standing in zip(new, await self._claims.claim(new), strict=True):
            if standing == DONE:
                self._put(MessageEnd("duplicate", work.deliveries, (), work))
            else:
                work.standing = standing
                work.ordered = self.binding.order == "key" and bool(work.order_key)
                if not work.ordered or self._order.begin(work.order_key, work):
                    self._start(work)

    async def _opened(self, delivery: BrokerDelivery) -> MessageWork:
        """Open a message, also while many large bodies are being decoded. Raises `Unanswerable`."""
        for _ in range(OPENINGS):
            with suppress(CapacityError):
                return await self._opener.open(delivery)
            await asyncio.sleep(1.0)
        return await self._opener.open(delivery)

    def _reject(self, delivery: BrokerDelivery, reason: DeadReason) -> None:
        letter = self._writer.dead(delivery, reason)
        self._put(MessageEnd("dead", (delivery,), (letter,), None, reason))

    # ── running ───────────────────────────────────────────────────────────────────────────────────────

    def _start(self, work: MessageWork) -> None:
        work.task = task = asyncio.create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, work: MessageWork) -> None:
        try:
            while work.standing > 0:
                await self._pause(min(work.standing, 1.0))
                (work.standing,) = await self._claims.claim([work])
            if work.standing == DONE:
                end = MessageEnd("duplicate", work.deliveries, (), work)
            else:
                end = await self.runner.run(work)
        except Draining:
            return  # `aclose` releases the message
        except asyncio.CancelledError:
            if work.id not in self._cancelled:
                raise
            end = MessageEnd("cancelled", work.deliveries, (), work)
        except Exception:
            log.exception("bus %s: a message failed", self.binding.name)
            end = self.runner.broken(work)
        self._put(end)

    async def _pause(self, seconds: float) -> None:
        """Wait. Raises `Draining` when the process ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        if self._draining.is_set():
            raise Draining

    async def _publish(self, messages: Sequence[BrokerMessage]) -> Sequence[MessageRejected | None]:
        assert self.endings is not None
        return await self.endings.publish(messages)

    def _put(self, end: MessageEnd) -> None:
        assert self.endings is not None
        self.endings.put(end)
        self._freed.set()

    def _ended(self, end: MessageEnd) -> None:
        self.counts.ended(end)
        if (work := end.work) is None:
            return
        self._in_work.pop(work.id, None)
        self._cancelled.discard(work.id)
        if work.ordered and (following := self._order.end(work.order_key)) is not None:
            self._start(following)

    def _settled(self, count: int) -> None:
        self.held -= count
        self._freed.set()

    def _lost(self, work: MessageWork) -> None:
        """Another process works on the message: wait for its end."""
        work.standing = LOOK
        self._start(work)

    def _cancel(self, event: CloudEvent) -> None:
        """End a message in work without an answer. A message that waits for its turn runs."""
        work = self._in_work.get(self._opener.id_of(event))
        if work is not None and work.task is not None and not work.task.done():
            self._cancelled.add(work.id)
            work.task.cancel()

    # ── beside ────────────────────────────────────────────────────────────────────────────────────────

    async def _renew(self, subscription: BrokerSubscription) -> None:
        while True:
            await asyncio.sleep(self.binding.takeover / 4)
            works = list(self._in_work.values())
            if not works:
                continue
            await self._claims.renew([work for work in works if work.renewed_at])
            with suppress(BrokerUnavailable):
                await subscription.renew([delivery for work in works for delivery in work.deliveries])

    async def _watch_lag(self, subscription: BrokerSubscription) -> None:
        while True:
            self.lag = await subscription.lag()
            await self._sweep()
            await asyncio.sleep(LAG_EVERY)

    async def _sweep(self) -> None:
        with suppress(DoneTableUnavailable):
            await self._table.sweep()
