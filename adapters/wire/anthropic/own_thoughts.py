"""Removes the thoughts that only this gateway wrote from a message for a server of Anthropic's.

A turn that a server of chats answered has thoughts without a server's signature, and kept signatures of other servers.
Clients send both back, also after the session has moved to Anthropic's API, which refuses them.
"""

import re

import msgspec
from msgspec import Raw

from adapters.requests import Fields
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.openai import kept_signatures

_PREFIX = re.escape(kept_signatures.PREFIX.encode())
_OWN = re.compile(rb'"signature"\s*:\s*"(?:"|%b)|"data"\s*:\s*"%b' % (_PREFIX, _PREFIX))
"""A sign of such a thought. In a text the quotes would be escaped."""


class _Block(msgspec.Struct):
    type: str = ""
    signature: str | None = None
    data: str = ""


_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Fields]).decode
_blocks = msgspec.json.Decoder(list[Raw]).decode
_block = msgspec.json.Decoder(_Block).decode


def without_own_thoughts(native: Fields) -> Fields:
    """The fields of a message without such thoughts, and without turns that had nothing else. All other bytes are
    unchanged. A malformed message stays as it is."""
    if _OWN.search(memoryview(native["messages"])) is None:
        return native
    try:
        messages = [left for message in _messages(native["messages"]) if (left := _without(message)) is not None]
    except MALFORMED_JSON:
        return native
    return {**native, "messages": Raw(_encode(messages))}


def is_own(raw: Raw) -> bool:
    """Whether a block is such a thought. Raises msgspec's errors."""
    block = _block(raw)
    if block.type == "thinking":
        return not block.signature or kept_signatures.is_own(block.signature)
    return block.type == "redacted_thinking" and kept_signatures.is_own(block.data)


def _without(message: Fields) -> Fields | None:
    content = message.get("content", Raw(b"null"))
    if bytes(memoryview(content)[:1]) != b"[":
        return message
    blocks = _blocks(content)
    left = [raw for raw in blocks if not is_own(raw)]
    if len(left) == len(blocks):
        return message
    return {**message, "content": Raw(_encode(left))} if left else None
