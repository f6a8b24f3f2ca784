"""The client of an SQS endpoint. The group of a queue are all processes that read it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from adapters.brokers.base import (
    BrokerInbox,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    SubscriptionPlan,
)
from adapters.brokers.sqs.connection import QueueAbsent, SqsConnection, SqsQueue, code_of, unavailable
from adapters.brokers.sqs.entries import batches, entry_of
from adapters.brokers.sqs.subscription import SqsSubscription
from config.schema.bus.broker import BrokerConfig

Ends = list[MessageRejected | None]
_REJECTED = {
    "BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue", "MessageTooLong", "InvalidAttributeValue",
}  # fmt: skip


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
            except QueueAbsent as error:
                if topic in self._retained:
                    raise
                for at in places:
                    ends[at] = MessageUnroutable(str(error))
            else:
                await self._publish_to(queue, messages, places, ends)
        return ends

    async def _publish_to(
        self, queue: SqsQueue, messages: Sequence[BrokerMessage], places: list[int], ends: Ends
    ) -> None:
        entries, sizes = dict[int, Any](), dict[int, int]()
        for at in places:
            entries[at], sizes[at] = entry_of(queue, messages[at], at)
            if sizes[at] > queue.largest:
                ends[at] = MessageRejected(f"SQS: {sizes[at]} bytes; the queue accepts {queue.largest}")
        accepted = [at for at in places if ends[at] is None]
        for batch in batches(accepted, sizes, queue.largest):
            await self._send(queue, [entries[at] for at in batch], ends)

    async def _send(self, queue: SqsQueue, entries: list[Any], ends: Ends) -> None:
        try:
            result = await self._connection.call("send_message_batch", QueueUrl=queue.url, Entries=entries)
        except ClientError as error:
            if code_of(error) not in _REJECTED:
                raise unavailable(error) from None
            if len(entries) > 1:  # one of them is the reason
                for entry in entries:
                    await self._send(queue, [entry], ends)
                return
            ends[int(entries[0]["Id"])] = MessageRejected(f"SQS: {error}"[:300])
            return
        for failed in result.get("Failed", ()):
            reason = f"SQS: {failed.get('Code')}: {failed.get('Message', '')}"[:300]
            if not failed.get("SenderFault"):
                raise BrokerUnavailable(reason)
            ends[int(failed["Id"])] = MessageRejected(reason)

    async def aclose(self) -> None:
        await self._connection.aclose()
