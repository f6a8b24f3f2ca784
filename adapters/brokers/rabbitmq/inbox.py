"""All messages of a topic from now on, in a queue that ends with the connection."""

import asyncio
from contextlib import suppress

from aiormq.abc import AbstractChannel, DeliveredMessage

from adapters.brokers.base import BrokerDelivery, BrokerUnavailable
from adapters.brokers.rabbitmq.connection import RabbitConnection, answering, close
from adapters.brokers.rabbitmq.messages import delivery_of
from adapters.brokers.rabbitmq.queues import declare_inbox

AHEAD = 1000


class RabbitInbox:
    """Acknowledges the messages that `receive` returns."""

    def __init__(self, connection: RabbitConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._channel: AbstractChannel | None = None
        self._arrived: list[DeliveredMessage] = []
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Begin to read. Raises `BrokerUnavailable`."""
        self._channel = channel = await self._connection.channel()
        channel.closing.add_done_callback(lambda _: self._wake.set())
        try:
            async with answering():
                queue = await declare_inbox(channel, self._topic)
                await channel.basic_qos(prefetch_count=AHEAD)
                await channel.basic_consume(queue, self._arrive)
        except BaseException:
            await self.aclose()
            raise

    async def _arrive(self, message: DeliveredMessage) -> None:
        self._arrived.append(message)
        self._wake.set()

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        channel = self._channel
        if channel is None or channel.is_closed:
            raise BrokerUnavailable("RabbitMQ: the connection is lost")
        if not self._arrived:
            self._wake.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._wake.wait()
            except TimeoutError:
                return []
        messages, self._arrived = self._arrived, []
        if not messages:
            return []
        with suppress(BrokerUnavailable):  # the next call reports the loss; these messages have arrived
            async with answering():
                await channel.basic_ack(messages[-1].delivery_tag or 0, multiple=True, wait=False)
        return [delivery_of(self._topic, self._topic, message, None) for message in messages]

    async def aclose(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await close(channel)
