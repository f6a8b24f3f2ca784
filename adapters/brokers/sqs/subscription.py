"""One reader of a queue."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import Any

from botocore.exceptions import ClientError

from adapters.brokers.base import BrokerDelivery, BrokerUnavailable, SubscriptionPlan
from adapters.brokers.sqs.connection import SqsConnection, SqsQueue, unavailable
from adapters.brokers.sqs.entries import KEY, MOST
from adapters.brokers.sqs.envelope import decode

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
