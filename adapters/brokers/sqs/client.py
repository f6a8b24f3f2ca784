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
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
)
from adapters.brokers.ends import end_of, together
from adapters.brokers.sqs.connection import QueueAbsent, SqsConnection, SqsQueue, code_of, unavailable
from adapters.brokers.sqs.entries import batches, entry_of
from adapters.brokers.sqs.subscription import SqsSubscription
from config.schema.bus import BrokerConfig

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
