"""The client of an SQS endpoint. The group of a queue are all processes that read it."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import Any

from botocore.exceptions import ClientError

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerInbox,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
    end_of,
    together,
)
from adapters.brokers.sqs.connection import (
    KEY,
    MOST,
    QueueAbsent,
    SqsConnection,
    SqsQueue,
    batches,
    code_of,
    decode,
    entry_of,
    unavailable,
)
from config.schema.bus import BrokerConfig

# One reader of a queue.

LONGEST_HOLD = 43_200
"""Seconds: the longest time for which SQS hides a received message."""
LONGEST_POLL = 20


class SqsSubscription:
    """Received messages are hidden from other readers for `ack_wait`."""

    def __init__(self, connection: SqsConnection, plan: SubscriptionPlan, queue: SqsQueue) -> None:
        self._connection = connection
        self._topic = plan.topic
        self._queue = queue
        self._hidden = min(LONGEST_HOLD, max(1, ceil(plan.ack_wait)))
        self._poll: asyncio.Task[list[BrokerDelivery]] | None = None
        """A call whose messages `receive` has not returned."""

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        if not most:
            await asyncio.sleep(patience)
            return []
        self._poll = asyncio.create_task(self._received(most, patience))
        deliveries = await asyncio.shield(self._poll)  # SQS hides messages for a call that nothing waits for as well
        self._poll = None
        return deliveries

    async def _received(self, most: int, patience: float) -> list[BrokerDelivery]:
        try:
            result = await self._connection.call(
                "receive_message",
                QueueUrl=self._queue.url,
                MaxNumberOfMessages=min(MOST, most),
                WaitTimeSeconds=min(LONGEST_POLL, ceil(patience)),
                VisibilityTimeout=self._hidden,
                MessageAttributeNames=["All"],
                AttributeNames=["ApproximateReceiveCount", "MessageGroupId"],
            )
            return [self._delivery(message) for message in result.get("Messages", ())]
        except (ClientError, KeyError) as error:
            raise unavailable(error) from None

    def _delivery(self, message: Any) -> BrokerDelivery:
        body, headers = decode(message["Body"], message.get("MessageAttributes", {}))
        about = message.get("Attributes", {})
        key = about.get("MessageGroupId") or headers.get(KEY, "")
        return BrokerDelivery(
            self._topic,
            body,
            headers,
            key=key.encode(),
            place=message["MessageId"],
            handle=message["ReceiptHandle"],
            count=int(about.get("ApproximateReceiveCount", 0)),
        )

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._each("delete_message_batch", deliveries)

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._each("change_message_visibility_batch", deliveries, VisibilityTimeout=self._hidden)

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        if self._poll is not None:
            await asyncio.wait([self._poll])  # it would receive the messages again, which counts as a delivery
        await self._each("change_message_visibility_batch", deliveries, VisibilityTimeout=0)

    async def _each(self, operation: str, deliveries: Sequence[BrokerDelivery], **fields: Any) -> None:
        handles = [delivery.handle for delivery in deliveries]
        calls = [
            self._connection.call(
                operation,
                QueueUrl=self._queue.url,
                Entries=[
                    {"Id": str(at), "ReceiptHandle": handle, **fields}
                    for at, handle in enumerate(handles[begin : begin + MOST])
                ],
            )
            for begin in range(0, len(handles), MOST)
        ]
        try:
            await asyncio.gather(*calls)  # a message that fails alone is delivered again, and recognised
        except ClientError as error:
            raise unavailable(error) from None

    async def lag(self) -> int | None:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        try:
            result = await self._connection.call("get_queue_attributes", QueueUrl=self._queue.url, AttributeNames=names)
            return sum(int(result["Attributes"][name]) for name in names)
        except (ClientError, BrokerUnavailable, KeyError):
            return None

    async def aclose(self) -> None:
        """Return the messages of a call whose caller was cancelled."""
        if self._poll is None:
            return
        with suppress(BrokerUnavailable):
            await self.release(await self._poll)


Ends = list[PublishEnd]
_REJECTED = {
    "BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue", "MessageTooLong", "InvalidAttributeValue",
}  # fmt: skip
_NO_RIGHT = {"AccessDenied", "AccessDeniedException", "KmsAccessDenied"}


def make(config: BrokerConfig) -> "SqsClient":
    """The client of one endpoint."""
    return SqsClient(config)


class SqsClient:
    """Publishes, and subscribes."""

    def __init__(self, config: BrokerConfig) -> None:
        self._connection = SqsConnection(config)
        self._retained = set[str]()
        """Topics of the configuration: their queues must exist, and messages wait for them."""

    async def open(self) -> None:
        await self._connection.open()

    async def subscribe(self, plan: SubscriptionPlan) -> SqsSubscription:
        self._retained.update(plan.retained)
        for topic in filter(None, plan.retained):
            await self._connection.queue(topic)
        return SqsSubscription(self._connection, plan, await self._connection.queue(plan.topic))

    async def listen(self, topic: str) -> BrokerInbox:
        raise BrokerUnavailable("SQS: a queue gives each message to one reader only")

    async def publish(self, messages: Sequence[BrokerMessage]) -> Ends:
        ends: Ends = [None] * len(messages)
        by_topic = defaultdict[str, list[int]](list)
        for at, message in enumerate(messages):
            by_topic[message.topic].append(at)
        for topic, places in by_topic.items():
            try:
                queue = await self._connection.queue(topic)
                await self._publish_to(queue, messages, places, ends)
            except BrokerUnavailable as error:
                is_chosen = isinstance(error, QueueAbsent) and topic not in self._retained
                for at in places:
                    ends[at] = MessageUnroutable(str(error)) if is_chosen else error
        return together(ends)

    async def _publish_to(
        self, queue: SqsQueue, messages: Sequence[BrokerMessage], places: list[int], ends: Ends
    ) -> None:
        entries, sizes = dict[int, Any](), dict[int, int]()
        for at in places:
            try:
                entries[at], sizes[at] = entry_of(queue, messages[at], at)
            except UnicodeError as error:
                ends[at] = end_of("SQS", error)
                continue
            if sizes[at] > queue.largest:
                ends[at] = MessageRejected(f"SQS: {sizes[at]} bytes; the queue accepts {queue.largest}")
        accepted = [at for at in places if ends[at] is None]
        for batch in batches(accepted, sizes, queue.largest):
            await self._send(queue, [entries[at] for at in batch], ends)

    async def _send(self, queue: SqsQueue, entries: list[Any], ends: Ends) -> None:
        try:
            result = await self._connection.call("send_message_batch", QueueUrl=queue.url, Entries=entries)
        except ClientError as error:
            if len(entries) > 1 and code_of(error) in _REJECTED:  # one of them is the reason
                for entry in entries:
                    await self._send(queue, [entry], ends)
            else:
                _end(entries, ends, _refusal(error))
        except BrokerUnavailable as error:
            _end(entries, ends, error)
        else:
            for failed in result.get("Failed", ()):
                kind = MessageRejected if failed.get("SenderFault") else BrokerUnavailable
                ends[int(failed["Id"])] = kind(f"SQS: {failed.get('Code')}: {failed.get('Message', '')}"[:300])

    async def aclose(self) -> None:
        await self._connection.aclose()


def _end(entries: list[Any], ends: Ends, end: PublishEnd) -> None:
    for entry in entries:
        ends[int(entry["Id"])] = end


def _refusal(error: ClientError) -> PublishEnd:
    code, message = code_of(error), f"SQS: {error}"[:300]
    if code in _REJECTED:
        return MessageRejected(message)
    return TopicRefused(message) if code in _NO_RIGHT else unavailable(error)
