"""The ends of published messages. A message that fails changes nothing for the others of its batch."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence

from adapters.brokers.base import BrokerMessage, BrokerUnavailable, MessageRejected, PublishEnd

_DATA = (ValueError, TypeError, OverflowError, RecursionError, struct.error)
"""Errors of the encoding of a message, such as a text that is not Unicode."""


async def publish_each(
    broker: str, messages: Sequence[BrokerMessage], publish: Callable[[BrokerMessage], Awaitable[PublishEnd]]
) -> list[PublishEnd]:
    """Publish messages at the same time, each by a call of its own."""
    results = await asyncio.gather(*map(publish, messages), return_exceptions=True)
    return [end_of(broker, result) for result in results]


def end_of(broker: str, result: BaseException | None) -> PublishEnd:
    """The end of a message whose call has returned or raised `result`."""
    if result is None or isinstance(result, MessageRejected | BrokerUnavailable):
        return result
    kind = MessageRejected if isinstance(result, _DATA) else BrokerUnavailable
    return kind(f"{broker}: {type(result).__name__}: {result}"[:300])
