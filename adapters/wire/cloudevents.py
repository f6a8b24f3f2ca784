"""CloudEvents 1.0 as headers and a body (binary mode), or as one JSON object (structured mode)."""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec import Raw

MAX_ID, MAX_SOURCE, MAX_VALUE, MAX_EXTENSIONS = 512, 2048, 4096, 64
_NAME = re.compile(r"[a-z0-9]{1,64}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of a pair of surrogates, which no encoding has."""
REQUIRED = ("specversion", "id", "source", "type")


class EnvelopeError(Exception):
    """A message that is no valid CloudEvent. `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class CloudEvent(NamedTuple):
    """An event with its data as bytes."""

    id: str
    source: str
    type: str
    data: bytes
    content_type: str = ""
    """The type of the data; empty when it is not given."""
    extensions: Mapping[str, str] = {}
    """All other attributes by name."""


def is_name(name: str) -> bool:
    """Whether a text may name an attribute."""
    return _NAME.fullmatch(name) is not None


def event_of(attributes: dict[str, str], data: bytes) -> CloudEvent:
    """An event of checked attributes. `attributes` is consumed. Raises `EnvelopeError`."""
    for name in REQUIRED:
        if not attributes.get(name):
            raise EnvelopeError("missing_attribute", f"The CloudEvent has no `{name}`.")
    version = attributes.pop("specversion")
    if version != "1.0":
        raise EnvelopeError("unsupported_version", "The `specversion` of the CloudEvent is not 1.0.")
    if len(attributes) > MAX_EXTENSIONS:
        raise EnvelopeError("too_many_attributes", f"The CloudEvent has more than {MAX_EXTENSIONS} attributes.")
    for name, value in attributes.items():
        most = {"id": MAX_ID, "source": MAX_SOURCE}.get(name, MAX_VALUE)
        if len(value) > most or _UNPRINTABLE.search(value):
            message = f"The attribute `{name}` has more than {most} characters, or a control character."
            raise EnvelopeError("invalid_attribute", message)
    id_, source, type_ = (attributes.pop(name) for name in REQUIRED[1:])
    return CloudEvent(id_, source, type_, data, attributes.pop("datacontenttype", ""), attributes)


# Decodes the message of a broker: its headers and its body.

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


# Encodes an event in binary mode: attributes as headers, the data as the body.


def headers_of(event: CloudEvent) -> dict[str, str]:
    """The headers of an event. A broker with another prefix replaces `ce_`."""
    headers = {"ce_specversion": "1.0", "ce_id": event.id, "ce_source": event.source, "ce_type": event.type}
    if event.content_type:
        headers["content-type"] = event.content_type
    for name, value in event.extensions.items():
        headers[f"ce_{name}"] = value
    return headers


def parse(text: str) -> float | None:
    """Unix seconds; None for a text that is no timestamp with a zone."""
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else at.timestamp()
    except (ValueError, OverflowError):
        return None


def format_time(utc: float) -> str:
    """The timestamp in UTC, to the millisecond."""
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
