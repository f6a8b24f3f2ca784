"""Ends messages in order: the broker acknowledges the answer, the table stores the id, the message is settled.

Messages that end while others are being ended wait and are ended together: the more messages end, the fewer calls each
needs.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from adapters.brokers.base import (
    BrokerClient,
    BrokerDelivery,
    BrokerMessage,
    BrokerSubscription,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
)
from adapters.errors import BackendError
from gateway.bus.answers import AnswerMessages, is_dead_letter
from gateway.bus.claims import Claims
from gateway.bus.insist import Insistence
from gateway.bus.running import MessageRunner
from gateway.bus.work import DeadReason, MessageEnd, MessageWork

log = logging.getLogger(__name__)
MOST = 1000
"""Messages that are ended together."""
CLOSING = 1.0
"""Seconds for a settlement in progress when the process ends."""


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
        writer: AnswerMessages,
        runner: MessageRunner,
        insist: Insistence,
        ended: Callable[[MessageEnd], None],
        lost: Callable[[MessageWork], None],
        settled: Callable[[int], None],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._claims = claims
        self._writer = writer
        self._runner = runner
        self._insist = insist
        self._ended = ended
        self._lost = lost
        self._settled = settled
        self._waiting: list[MessageEnd] = []
        self._wake = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        """Settles the messages of one batch while the answers of the next one are published."""
        self.size = 0
        """Messages that are being ended."""
        self.unpublished = 0
        """Messages that the broker has rejected, with all that could replace them."""

    def put(self, end: MessageEnd) -> None:
        """End a message."""
        self._waiting.append(end)
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
                await self._end(batch)
        finally:
            if self._settling is not None:
                await asyncio.wait([self._settling], timeout=CLOSING)
                self._settling.cancel()

    async def _end(self, batch: list[MessageEnd]) -> None:
        answered = [end.work for end in batch if end.work is not None and end.outcome != "duplicate"]
        if lost := {work.id for work in await self._claims.lost(answered)}:
            for end in [end for end in batch if end.work is not None and end.work.id in lost]:
                batch.remove(end)
                self.size -= 1
                assert end.work is not None
                self._lost(end.work)
        await self._publish_all(batch)
        await self._claims.finish([end.work for end in batch if end.work is not None and end.outcome != "duplicate"])
        for end in batch:
            self._ended(end)  # from now on another delivery of the message is recognised by the table
        if self._settling is not None:
            await self._settling
        deliveries = [delivery for end in batch for delivery in end.deliveries]
        self._settling = asyncio.create_task(self._settle(deliveries, len(batch)))

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

    async def _publish_all(self, batch: Sequence[MessageEnd]) -> None:
        pairs = [(end, message) for end in batch for message in end.messages]
        rejected = await self.publish([message for _, message in pairs])
        again = [
            replacement
            for (end, message), rejection in zip(pairs, rejected, strict=True)
            if rejection is not None
            for replacement in self._replacements(end, message, rejection)
        ]
        for message, rejection in zip(again, await self.publish(again), strict=True):
            if rejection is not None:
                self.unpublished += 1
                log.error("bus: a message for %s cannot be published: %s", message.topic, rejection)

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[MessageRejected | None]:
        """Publish messages, when the broker can be reached."""
        if not messages:
            return []
        return await self._insist("publishing", lambda: self._client.publish(messages))

    def _replacements(
        self, end: MessageEnd, message: BrokerMessage, rejection: MessageRejected
    ) -> Sequence[BrokerMessage]:
        """Smaller messages in the place of a message that the broker rejects."""
        delivery = end.deliveries[0]
        if isinstance(rejection, MessageUnroutable) and not is_dead_letter(message):
            return self._without_reader(end, message)
        if end.dead is not None:
            return (self._writer.dead(delivery, end.dead, whole=False),)
        assert end.work is not None
        log.warning("bus: the answer to %s is rejected: %s", delivery.place, rejection)
        error = BackendError(
            "The broker rejects the answer, for example because it is too large.", code="answer_rejected"
        )
        return self._runner.failed(end.work, error, "").messages

    def _without_reader(self, end: MessageEnd, message: BrokerMessage) -> Sequence[BrokerMessage]:
        """A dead letter in the place of an answer; nothing in the place of an error, which has a dead letter."""
        if end.dead is not None:
            return ()
        log.warning("bus: nothing reads the topic %s of the answer to %s", message.topic, end.deliveries[0].place)
        reason = DeadReason("answer_unroutable", f"Nothing reads the topic {message.topic} of the answer.")
        return (self._writer.dead(end.deliveries[0], reason),)
