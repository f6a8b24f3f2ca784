"""Decodes the message of a broker: its headers and its body."""

import base64
import binascii
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from adapters.wire.cloudevents.event import CloudEvent, EnvelopeError, event_of, is_name

STRUCTURED, BATCHED = "application/cloudevents+json", "application/cloudevents-batch"
_PREFIXES = ("ce_", "ce-", "cloudevents:", "cloudevents_")
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_value = msgspec.json.Decoder(str | int | bool | None).decode
_string = msgspec.json.Decoder(str).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode(headers: Mapping[str, str], body: bytes) -> CloudEvent | None:
    """The event of a message; None for a message without any sign of an event.

    `headers` have lower-case names. Raises `EnvelopeError`.
    """
    content_type = headers.get("content-type", "")
    media = content_type.partition(";")[0].strip().lower()
    if media.startswith(BATCHED):
        raise EnvelopeError("batched_events", "Send each CloudEvent as a message of its own.")
    if media.startswith("application/cloudevents"):
        if media != STRUCTURED:
            raise EnvelopeError("unsupported_format", f"A structured CloudEvent is {STRUCTURED}.")
        return _structured(body)
    attributes = {attribute: value for name, value in headers.items() if (attribute := attribute_of(name)) is not None}
    if "specversion" not in attributes and "id" not in attributes:
        return None
    if content_type:
        attributes["datacontenttype"] = content_type
    return event_of(attributes, body)


def attribute_of(header: str) -> str | None:
    """The attribute in a header's name; None for any other header."""
    for prefix in _PREFIXES:
        if header.startswith(prefix):
            name = header[len(prefix) :]
            return name if is_name(name) else None
    return None


def _structured(body: bytes) -> CloudEvent:
    try:
        fields = _fields(body)
    except _UNREADABLE:
        raise EnvelopeError("invalid_json", "The structured CloudEvent is not a JSON object.") from None
    data, encoded = fields.pop("data", None), fields.pop("data_base64", None)
    if data is not None and encoded is not None:
        raise EnvelopeError("invalid_data", "The CloudEvent has both `data` and `data_base64`.")
    attributes = {name: text for name, raw in fields.items() if (text := _text(name, raw)) is not None}
    if encoded is not None:
        return event_of(attributes, _from_base64(encoded))
    if data is None:
        return event_of(attributes, b"")
    attributes.setdefault("datacontenttype", "application/json")
    return event_of(attributes, _data(bytes(data), attributes["datacontenttype"]))


def _text(name: str, raw: Raw) -> str | None:
    """An attribute as text; None for null."""
    try:
        value = _value(raw)
    except _UNREADABLE:
        value, name = None, ""
    if not is_name(name):
        raise EnvelopeError("invalid_attribute", "An attribute of the CloudEvent has no valid name or value.")
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _data(data: bytes, content_type: str) -> bytes:
    """JSON as it is; the text of a string that is declared as another type."""
    media = content_type.partition(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json") or not data.startswith(b'"'):
        return data
    try:
        return _string(data).encode("utf-8", "surrogatepass")
    except _UNREADABLE:
        raise EnvelopeError("invalid_data", "The `data` of the CloudEvent is not a text.") from None


def _from_base64(raw: Raw) -> bytes:
    try:
        return base64.b64decode(_string(raw), validate=True)
    except (*_UNREADABLE, binascii.Error, ValueError):
        raise EnvelopeError("invalid_data", "The `data_base64` of the CloudEvent is not base64.") from None
