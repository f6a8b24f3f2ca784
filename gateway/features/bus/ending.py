"""Ends messages in order: the broker acknowledges the answer, the table stores the id, the message is settled.

Messages that end while others are being ended wait and are ended together: the more messages end, the fewer calls each
needs. A message whose answer the broker cannot take now waits alone, and its answer is published again later.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapters.brokers.base import (
    BrokerClient,
    BrokerDelivery,
    BrokerMessage,
    BrokerSubscription,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    PublishEnd,
    TopicRefused,
)
from adapters.errors import BackendError
from config.schema.bus import BindingConfig
from gateway.features.bus.answers import AnswerMessages, is_dead_letter
from gateway.features.bus.claims import Claims
from gateway.features.bus.running import MessageRunner
from gateway.features.bus.work import DeadReason, MessageEnd, MessageWork
from gateway.state.insist import FIRST_PAUSE, LONGEST_PAUSE, Insistence

log = logging.getLogger(__name__)
MOST = 1000
"""Messages that are ended together."""
CLOSING = 1.0
"""Seconds for a settlement in progress when the process ends."""
PART = "publishing"


class Replacements:
    """The replacements of one binding."""

    def __init__(self, binding: BindingConfig, writer: AnswerMessages, runner: MessageRunner) -> None:
        self._own = {binding.reply.topic, binding.dead_letters}
        self._writer = writer
        self._runner = runner

    def waits(self, message: BrokerMessage, end: PublishEnd) -> PublishEnd:
        """A refused topic of the configuration is mended by an operator: its messages wait."""
        if isinstance(end, TopicRefused) and message.topic in self._own:
            return BrokerUnavailable(str(end))
        return end

    def of(self, end: MessageEnd, message: BrokerMessage, rejection: MessageRejected) -> MessageEnd:
        """The end after a message that the broker rejects, with messages in its place: smaller ones, or for another
        topic."""
        delivery = end.deliveries[0]
        if isinstance(rejection, MessageUnroutable | TopicRefused) and not is_dead_letter(message):
            return self._of_topic(end, message, rejection)
        if end.dead is not None:
            return end._replace(messages=(self._writer.dead(delivery, end.dead, whole=False),))
        assert end.work is not None
        log.warning("bus: the answer to %s is rejected: %s", delivery.place, rejection)
        error = BackendError(
            "The broker rejects the answer, for example because it is too large.", code="answer_rejected"
        )
        return self._runner.failed(end.work, error, "")

    def _of_topic(self, end: MessageEnd, message: BrokerMessage, rejection: MessageRejected) -> MessageEnd:
        """A dead letter in the place of an answer; nothing in the place of an error, which has a dead letter."""
        log.warning("bus: the answer to %s cannot be published: %s", end.deliveries[0].place, rejection)
        if end.dead is not None:
            return end._replace(messages=())
        if isinstance(rejection, TopicRefused):
            reason = DeadReason("reply_topic_refused", f"The broker refuses the message's `replyto`: {rejection}")
        else:
            reason = DeadReason("answer_unroutable", f"Nothing reads the topic {message.topic} of the answer.")
        return end._replace(outcome="dead", dead=reason, messages=(self._writer.dead(end.deliveries[0], reason),))


class Letter(NamedTuple):
    """A message to publish."""

    message: BrokerMessage
    is_replacement: bool = False


class Ending:
    """A message that is being ended, and what is still to be published."""

    __slots__ = ("end", "letters")

    def __init__(self, end: MessageEnd) -> None:
        self.end = end
        self.letters = [Letter(message) for message in end.messages]

    @property
    def claimed(self) -> MessageWork | None:
        """The work whose id this process has claimed."""
        return self.end.work if self.end.outcome != "duplicate" else None


class Endings:
    """`put` an end; `run` until cancelled.

    `ended` is called for each end, `lost` for a message that another process has claimed, and `settled` with the number
    of deliveries that this process no longer holds.
    """

    def __init__(
        self,
        client: BrokerClient,
        subscription: BrokerSubscription,
        claims: Claims,
        replacements: Replacements,
        insist: Insistence,
        ended: Callable[[MessageEnd], None],
        lost: Callable[[MessageWork], None],
        settled: Callable[[int], None],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._claims = claims
        self._replacements = replacements
        self._insist = insist
        self._ended = ended
        self._lost = lost
        self._settled = settled
        self._waiting: list[Ending] = []
        self._later: list[Ending] = []
        """Those whose publication is tried again after a pause."""
        self._stuck = set[Ending]()
        """Those whose last publication has failed."""
        self._pause = FIRST_PAUSE
        self._wake = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        """Settles the messages of one batch while the answers of the next one are published."""
        self.size = 0
        """Messages that are being ended."""
        self.unpublished = 0
        """Messages that the broker has rejected, with all that could replace them."""

    def put(self, end: MessageEnd) -> None:
        """End a message."""
        self._waiting.append(Ending(end))
        self.size += 1
        self._wake.set()

    async def run(self) -> None:
        """End messages until cancelled."""
        try:
            while True:
                await self._wake.wait()
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                if not self._waiting:
                    self._wake.clear()
                try:
                    await self._end(batch)
                except BaseException:
                    self._waiting = batch + self._waiting
                    self._wake.set()
                    raise
        finally:
            if self._settling is not None:
                await asyncio.wait([self._settling], timeout=CLOSING)
                self._settling.cancel()

    async def _end(self, batch: list[Ending]) -> None:
        """End the messages of a batch, and take them from it."""
        answered = [ending.claimed for ending in batch if ending.claimed is not None]
        if lost := {work.id for work in await self._claims.lost(answered)}:
            for ending in [each for each in batch if each.end.work is not None and each.end.work.id in lost]:
                batch.remove(ending)
                self._stuck.discard(ending)
                self.size -= 1
                assert ending.end.work is not None
                self._lost(ending.end.work)
        await self._publish_all(batch)
        done = [ending for ending in batch if not ending.letters]
        await self._claims.finish([ending.claimed for ending in done if ending.claimed is not None])
        waiting = [ending for ending in batch if ending.letters]
        batch.clear()
        self._stuck.difference_update(done)
        self._try_later(waiting)
        for ending in done:
            self._ended(ending.end)  # from now on another delivery of the message is recognised by the table
        if self._settling is not None:
            await self._settling
        deliveries = [delivery for ending in done for delivery in ending.end.deliveries]
        self._settling = asyncio.create_task(self._settle(deliveries, len(done)))

    def _try_later(self, endings: list[Ending]) -> None:
        if endings and not self._later:
            asyncio.get_running_loop().call_later(self._pause, self._try_again)
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        self._later += endings
        self._stuck.update(endings)
        if not self._stuck:
            self._pause = FIRST_PAUSE
            self._insist.succeeded(PART)

    def _try_again(self) -> None:
        later, self._later = self._later, []
        self._waiting = later + self._waiting
        self._wake.set()

    async def _settle(self, deliveries: Sequence[BrokerDelivery], ends: int) -> None:
        try:
            if deliveries:
                await self._subscription.settle(deliveries)
        except BrokerUnavailable as error:
            log.info("bus: %d answered messages will be delivered again and recognised: %s", len(deliveries), error)
        except Exception:  # of a broker's library: the messages after these must end too
            log.exception("bus: %d answered messages may not be settled", len(deliveries))
        finally:
            self.size -= ends
            self._settled(len(deliveries))

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────

    async def _publish_all(self, batch: Sequence[Ending]) -> None:
        """Publish the messages of all, each once, then replacements of those that the broker rejects. What remains in
        an ending waits for the broker."""
        fresh = [(ending, letter) for ending in batch for letter in ending.letters]
        for ending in batch:
            ending.letters = []
        while fresh:
            try:
                ends = await self._attempt([letter.message for _, letter in fresh])
            except BaseException:  # cancelled, for example: nothing is certain
                for ending, letter in fresh:
                    ending.letters.append(letter)
                raise
            sent, fresh = fresh, []
            for (ending, letter), end in zip(sent, ends, strict=True):
                if isinstance(end, BrokerUnavailable):
                    self._insist.failed(PART, end)
                    ending.letters.append(letter)
                elif end is not None and letter.is_replacement:
                    self.unpublished += 1
                    log.error("bus: a message for %s cannot be published: %s", letter.message.topic, end)
                elif end is not None:
                    ending.end = self._replacements.of(ending.end, letter.message, end)
                    fresh += [(ending, Letter(message, is_replacement=True)) for message in ending.end.messages]

    async def _attempt(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        """The end of each message after one call."""
        try:
            ends = await self._client.publish(messages)
        except Exception as error:
            if not isinstance(error, BrokerUnavailable):  # of a broker's library: the log has its traceback
                self._insist.failed(PART, error)
                error = BrokerUnavailable(f"{type(error).__name__}: {error}"[:300])
            return [error] * len(messages)
        return [self._replacements.waits(message, end) for message, end in zip(messages, ends, strict=True)]

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[MessageRejected | None]:
        """Publish messages of a stream, and wait until each is published or rejected."""
        ends: list[MessageRejected | None] = [None] * len(messages)
        left = list(range(len(messages)))

        async def attempt() -> None:
            nonlocal left
            tried, left = left, []
            away: BrokerUnavailable | None = None
            for at, end in zip(tried, await self._attempt([messages[at] for at in tried]), strict=True):
                if isinstance(end, BrokerUnavailable):
                    away = end
                    left.append(at)
                else:
                    ends[at] = end
            if away is not None:
                raise away

        if messages:
            await self._insist("publishing a stream", attempt)
        return ends
