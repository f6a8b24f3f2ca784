"""Headers of messages ↔ properties of MQTT 5, with CloudEvents as in their binding for MQTT.

Attributes of CloudEvents are user properties without a prefix. The content type, the response topic, the correlation
data and the expiry are properties of MQTT and attributes both.
"""

import re
import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from adapters.brokers.base import BrokerMessage
from adapters.wire.cloudevents.timestamps import format_time, parse

LONGEST_EXPIRY = 2**32 - 1
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_NO_ATTRIBUTES = ("authorization",)
"""Names without a dash that are headers also beside attributes of CloudEvents."""


def headers_of(message: MQTTMessage, wall: Callable[[], float] = time.time) -> dict[str, str]:
    """The headers of a received message. What the sender states as a property only is an attribute too."""
    properties = message.properties
    pairs = [(name.lower(), value) for name, value in getattr(properties, "UserProperty", ())]
    is_event = any(name == "specversion" for name, _ in pairs)
    headers = {(_incoming(name) if is_event else _prefixed(name)): value for name, value in pairs}
    if (content_type := getattr(properties, "ContentType", None)) is not None:
        headers.setdefault("content-type", content_type)
    prefix = "ce_" if "ce_specversion" in headers else ""
    if (topic := getattr(properties, "ResponseTopic", None)) is not None:
        headers.setdefault("ce_replyto" if prefix else "reply-to", topic)
    if (correlation := getattr(properties, "CorrelationData", None)) is not None:
        headers.setdefault(f"{prefix}correlationid", correlation.decode("utf-8", "backslashreplace"))
    expiry = getattr(properties, "MessageExpiryInterval", None)
    if expiry is not None and "ce_expirytime" not in headers:
        headers.setdefault(f"{prefix}deadline", format_time(wall() + expiry))
    return headers


def properties_of(message: BrokerMessage, wall: Callable[[], float] = time.time) -> Any:
    """The properties of a message to publish.

    Raises `ValueError`, `MQTTException` and `struct.error` for texts that MQTT cannot carry.
    """
    made: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    headers: Mapping[str, str] = message.headers
    made.UserProperty = [(_outgoing(name), value) for name, value in headers.items() if name != "content-type"]
    if message.key and "ce_partitionkey" not in headers:
        made.UserProperty = ("partitionkey", message.key.decode("utf-8", "backslashreplace"))  # adds one
    if content_type := headers.get("content-type"):
        made.ContentType = content_type
    if topic := headers.get("ce_replyto"):
        made.ResponseTopic = topic
    if correlation := headers.get("ce_correlationid"):
        made.CorrelationData = correlation.encode()
    if (deadline := headers.get("ce_deadline")) and (at := parse(deadline)) is not None:
        made.MessageExpiryInterval = min(LONGEST_EXPIRY, max(1, ceil(at - wall())))
    return made


def _incoming(name: str) -> str:
    name = _prefixed(name)
    is_attribute = _ATTRIBUTE.fullmatch(name) is not None and name not in _NO_ATTRIBUTES
    return f"ce_{name}" if is_attribute else name


def _prefixed(name: str) -> str:
    return f"ce_{name[3:]}" if name.startswith("ce-") else name


def _outgoing(name: str) -> str:
    return name[3:] if name.startswith("ce_") else name
