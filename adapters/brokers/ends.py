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
    """Publish messages at the same time, each by a call of its own. Raises as `together`."""
    results = await asyncio.gather(*map(publish, messages), return_exceptions=True)
    return together([end_of(broker, result) for result in results])


def together(ends: list[PublishEnd]) -> list[PublishEnd]:
    """The ends of a batch. Raises `BrokerUnavailable` if that is the end of all."""
    if ends and isinstance(ends[0], BrokerUnavailable) and all(isinstance(end, BrokerUnavailable) for end in ends):
        raise ends[0]
    return ends


def end_of(broker: str, result: BaseException | None) -> PublishEnd:
    """The end of a message whose call has returned or raised `result`."""
    if result is None or isinstance(result, MessageRejected | BrokerUnavailable):
        return result
    kind = MessageRejected if isinstance(result, _DATA) else BrokerUnavailable
    return kind(f"{broker}: {type(result).__name__}: {result}"[:300])
