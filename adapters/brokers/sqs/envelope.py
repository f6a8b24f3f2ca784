"""Headers and bodies ↔ attributes and texts of SQS.

A message has ten attributes at most, with restricted names and values: headers that do not fit are one attribute as
JSON. A body is a text: other bytes are Base64, and an attribute states it.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

MOST_ATTRIBUTES = 10
PACKED, ENCODING = "headrace-headers", "headrace-encoding"
_NAME = re.compile(r"(?!(?i:aws|amazon)\.)[A-Za-z0-9_-]{1,200}")
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def encode(body: bytes, headers: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The text and the attributes of a message."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    pairs = dict(headers)
    if not text or _REFUSED.search(text):
        text, pairs[ENCODING] = b64encode(body).decode() or "=", "base64"
    if len(pairs) > MOST_ATTRIBUTES or not all(map(_fits, pairs, pairs.values())):
        encoding = pairs.pop(ENCODING, None)
        pairs = {PACKED: json.dumps(pairs), **({} if encoding is None else {ENCODING: encoding})}
    return text, {name: {"DataType": "String", "StringValue": value} for name, value in pairs.items()}


def decode(text: str, attributes: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a message."""
    headers = {name: each["StringValue"] for name, each in attributes.items() if "StringValue" in each}
    body = text.encode()
    if headers.pop(ENCODING, None) == "base64":
        try:
            body = b64decode(text, validate=True)
        except ValueError:
            body = b"" if text == "=" else body
    if (packed := headers.pop(PACKED, None)) is not None:
        headers |= _unpacked(packed)
    return body, {name.lower(): value for name, value in headers.items()}


def size_of(text: str, attributes: Mapping[str, Any]) -> int:
    """The bytes that SQS counts."""
    parts = (
        len(name.encode()) + len(each["DataType"]) + len(each["StringValue"].encode())
        for name, each in attributes.items()
    )
    return len(text.encode()) + sum(parts)


def _fits(name: str, value: str) -> bool:
    return bool(value) and _NAME.fullmatch(name) is not None and not _REFUSED.search(value)


def _unpacked(text: str) -> dict[str, str]:
    try:
        pairs = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(pairs, dict):
        return {}
    return {name: value for name, value in pairs.items() if isinstance(value, str)}
