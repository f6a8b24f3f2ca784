"""The queues of topics. A topic is a routing key of the exchange `amq.topic`, which every virtual host has."""

from collections.abc import Mapping

from aiormq import ChannelNotFoundEntity
from aiormq.abc import AbstractChannel

from adapters.brokers.base import BrokerUnavailable
from adapters.brokers.rabbitmq.connection import RabbitConnection

EXCHANGE = "amq.topic"
GROUP = "headrace"
"""The group whose queues have the names of their topics."""
LONGEST_WORK = 7 * 86400_000
"""Milliseconds after which the broker takes a message back: a stuck model is no reason (since RabbitMQ 3.12)."""
MOST_DELIVERIES = 1_000_000
"""The broker discards no message for its deliveries: this gateway ends it with a reason before."""
QUORUM: Mapping[str, str | int] = {
    "x-queue-type": "quorum",
    "x-delivery-limit": MOST_DELIVERIES,
    "x-consumer-timeout": LONGEST_WORK,
}
MOST_IN_INBOX = 100_000


def queue_of(topic: str, group: str = GROUP) -> str:
    """The name of the queue of a group."""
    return topic if group == GROUP else f"{topic}.{group}"


async def declare(connection: RabbitConnection, topic: str, queue: str) -> None:
    """Create the queue if it is missing, and bind it to the topic. Raises `BrokerUnavailable`."""
    if await ready(connection, queue) is None:
        async with connection.brief_channel() as channel:
            await channel.queue_declare(queue, durable=True, arguments=dict(QUORUM))
    async with connection.brief_channel() as channel:
        await channel.queue_bind(queue, EXCHANGE, topic)


async def declare_inbox(channel: AbstractChannel, topic: str) -> str:
    """Create a queue that ends with the connection. Returns its name."""
    declared = await channel.queue_declare(
        "", exclusive=True, auto_delete=True, arguments={"x-max-length": MOST_IN_INBOX}
    )
    name = declared.queue
    if not name:
        raise BrokerUnavailable("RabbitMQ: it has not named a queue")
    await channel.queue_bind(name, EXCHANGE, topic)
    return name


async def ready(connection: RabbitConnection, queue: str) -> int | None:
    """The number of messages that no member has received; None if the queue does not exist."""
    async with connection.brief_channel() as channel:
        try:
            declared = await channel.queue_declare(queue, passive=True)
        except ChannelNotFoundEntity:
            return None
        return declared.message_count or 0
