"""Carries what a server of chats demands back in the signature of a part, the one opaque text of Gemini's protocol.

Gemini's own signatures pass as they are. Everything else becomes a text of this gateway in base64, because clients
decode the field as bytes.
"""

import re
from base64 import b64decode, b64encode
from typing import Any

import msgspec
from msgspec import Raw

from adapters.requests import Fields
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.gemini import signatures
from adapters.wire.openai import kept_signatures

Object = dict[str, Any]

_BLOCKS, _THOUGHTS = "thinking_blocks", "reasoning_content"
_OWN = re.compile(rb'"thought_?[sS]ignature"\s*:\s*"aGVhZHJhY2UuMS[A-Za-z0-9+/=_-]*"')
"""A signature that this gateway wrote. In a text the quotes would be escaped."""
_SKIPPED = b'"thoughtSignature":"%b"' % signatures.SKIPPED.encode()

_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder().decode
_list = msgspec.json.Decoder(list[dict[str, Any]]).decode


def signature_of(extra: Raw, blocks: list[Object], thoughts: str) -> str | None:
    """The signature of a call: that of its `extra_content`, or a text with it and with the thoughts before the call.

    Clients of Gemini leave thoughts out of a history, and some servers of chats demand those of each call.
    """
    if extra and not blocks and (own := signatures.in_extra(extra)) is not None:
        return own
    carried = {"extra_content": extra, _BLOCKS: blocks, _THOUGHTS: "" if blocks else thoughts}
    fields: Object = {name: value for name, value in carried.items() if value}
    text = kept_signatures.encode("", Raw(_encode(fields))) if fields else None
    return None if text is None else b64encode(text.encode()).decode()


def fields_of(signature: str) -> Object:
    """The fields of a chat's call for a signature, and `thinking_blocks` and `reasoning_content` of its message."""
    try:
        text = b64decode(signature, altchars=b"-_" if {"-", "_"} & set(signature) else None).decode("ascii")
    except ValueError:
        text = ""
    if not kept_signatures.is_own(text):
        return {} if signature == signatures.SKIPPED else {"extra_content": signatures.extra_of(signature)}
    if (own_extra := kept_signatures.decode(text)) is None:
        return {}
    try:
        fields: Object = _any(own_extra.extra)
    except MALFORMED_JSON:
        return {}
    return {name: fields[name] for name in ("extra_content", _BLOCKS, _THOUGHTS) if name in fields}


def without_own(native: Fields) -> Fields:
    """The fields without such texts, which Gemini would refuse. All other bytes are unchanged."""
    contents = native.get("contents", Raw(b""))
    if _OWN.search(memoryview(contents)) is None:
        return native
    return {**native, "contents": Raw(_OWN.sub(_SKIPPED, bytes(contents)))}


def without_ids(native: Fields) -> Fields:
    """The fields without the ids of calls and results, which Vertex AI refuses."""
    contents = native.get("contents", Raw(b""))
    if b'"id"' not in bytes(contents):
        return native
    try:
        decoded = _list(contents)
    except MALFORMED_JSON:
        return native
    for content in decoded:
        parts = content.get("parts")
        for part in parts if isinstance(parts, list) else ():
            for name in ("functionCall", "functionResponse"):
                if isinstance(part, dict) and isinstance(inner := part.get(name), dict):
                    inner.pop("id", None)
    return {**native, "contents": Raw(_encode(decoded))}
