"""Messages, their properties and their headers. Attributes of CloudEvents have the prefix `cloudEvents:` in headers."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from aiormq import spec
from aiormq.abc import DeliveredMessage

from adapters.brokers.base import BrokerDelivery, BrokerMessage, MessageRejected

PREFIX = "cloudEvents:"
_PREFIXES = ("cloudevents:", "cloudevents_")
PERSISTENT = 2
MOST_OF_HEADERS = 96 * 1024
"""Bytes; headers travel in one frame, of 128 KiB at most."""
LONGEST_NAME = 255
COUNT, ACQUIRED, DEATHS = "x-delivery-count", "x-acquired-count", "x-death"
_REPEATED = ("rejected", "delivery_limit")
"""The reasons of a dead letter that has been delivered."""
_OF_BROKER = frozenset({COUNT, ACQUIRED, DEATHS})


def delivery_of(topic: str, queue: str, message: DeliveredMessage, handle: Any) -> BrokerDelivery:
    """A delivery. Its place is the message's own id; without one, a redelivery has another place."""
    properties = message.header.properties
    given: Mapping[str, Any] = properties.headers or {}
    headers = headers_of(given)
    if properties.content_type:
        headers.setdefault("content-type", properties.content_type)
    if properties.reply_to:
        headers.setdefault("reply-to", properties.reply_to)
    if properties.correlation_id:
        is_event = "ce_specversion" in headers
        headers.setdefault("ce_correlationid" if is_event else "correlationid", properties.correlation_id)
    return BrokerDelivery(
        topic,
        message.body,
        headers,
        key=headers.get("ce_partitionkey", "").encode(),
        place=f"{queue}/{properties.message_id or secrets.token_hex(12)}",
        handle=handle,
        count=deliveries_of(given, queue, redelivered=bool(getattr(message.delivery, "redelivered", False))),
    )


def headers_of(given: Mapping[str, Any]) -> dict[str, str]:
    """The headers as text; lists and tables are left out."""
    made: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower not in _OF_BROKER and (text := _text(value)) is not None:
            prefix = next((prefix for prefix in _PREFIXES if lower.startswith(prefix)), None)
            made[lower if prefix is None else f"ce_{lower[len(prefix) :]}"] = text
    return made


def deliveries_of(given: Mapping[str, Any], queue: str, *, redelivered: bool) -> int:
    """The deliveries of a message from this queue, this one included, also before it was a dead letter."""
    count = given.get(COUNT)
    earlier = max(count if isinstance(count, int) else 0, int(redelivered))
    deaths = given.get(DEATHS)
    for death in deaths if isinstance(deaths, list) else ():
        if isinstance(death, dict) and death.get("queue") == queue and death.get("reason") in _REPEATED:
            times = death.get("count")
            earlier += times if isinstance(times, int) else 1
    return earlier + 1


def properties_of(message: BrokerMessage, id_: str) -> spec.Basic.Properties | MessageRejected:
    """The properties of a message, or the reason why it cannot be encoded."""
    named = {_outgoing(name): value for name, value in message.headers.items() if name != "content-type"}
    if message.key:
        named.setdefault(f"{PREFIX}partitionkey", message.key.decode(errors="replace"))
    content_type = message.headers.get("content-type", "")
    size = sum(len(name.encode()) + len(value.encode()) + 6 for name, value in named.items())
    longest = max((len(text.encode()) for text in (*named, content_type)), default=0)
    if size > MOST_OF_HEADERS or longest > LONGEST_NAME:
        return MessageRejected("RabbitMQ: the headers are too large")
    return spec.Basic.Properties(
        content_type=content_type or None,
        headers=dict(named),
        delivery_mode=PERSISTENT,
        message_id=_short(id_),
        correlation_id=_short(message.headers.get("ce_correlationid", "")),
        reply_to=_short(message.headers.get("ce_replyto", "")),
    )


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else None


def _outgoing(name: str) -> str:
    return f"{PREFIX}{name[3:]}" if name.startswith("ce_") else name


def _short(text: str) -> str | None:
    """A property of at most 255 bytes; None for a longer one."""
    return text if 0 < len(text.encode()) <= LONGEST_NAME else None
