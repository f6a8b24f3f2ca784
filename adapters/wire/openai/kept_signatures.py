"""Keeps what a server of chats gives with a tool call and demands back, in the opaque field of another protocol.

Gemini signs its tool calls (`tool_calls[].extra_content.google.thought_signature`) and refuses the next step of a loop
without the signature. Messages and Responses have no field for it. Both have one opaque text that their clients
return unchanged: the `data` of a `redacted_thinking` block, and the `encrypted_content` of a reasoning item. The
gateway writes the call's id and its `extra_content` into that text, so that it needs no state.

OpenRouter gives thoughts as `reasoning_details`, and wants them back unchanged in a loop of tools. They are kept in the
same way, with the first call of their turn.

The text is not secret and not signed: a client can write the same into a chat itself.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from adapters.wire.decoding import MALFORMED_JSON

PREFIX = "headrace.1."
"""The start of every such text. No other server writes it."""
UNSIGNED = f"{PREFIX}unsigned"
"""The signature of thoughts that no server has signed. Some clients do not return thoughts without any signature."""
MAX_EXTRA = 256 * 1024
"""Bytes of the longest `extra_content` that is kept. A longer one is lost."""

_encode = msgspec.json.Encoder().encode


class CallExtra(NamedTuple):
    """The `extra_content` of one call, a JSON object."""

    call_id: str
    extra: Raw


_pair = msgspec.json.Decoder(tuple[str, Raw]).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode


def encode(call_id: str, extra: Raw) -> str | None:
    """The text for a call's `extra_content`. None if there is nothing to keep, or too much."""
    if not is_extra(extra):
        return None
    return PREFIX + urlsafe_b64encode(_encode((call_id, extra))).rstrip(b"=").decode()


def decode(text: str) -> CallExtra | None:
    """The content of a text that `encode` wrote; None for any other text."""
    if not is_own(text):
        return None
    given = text.removeprefix(PREFIX).encode()
    try:
        call_id, extra = _pair(urlsafe_b64decode(given + b"=" * (-len(given) % 4)))
    except (ValueError, *MALFORMED_JSON):
        return None
    return CallExtra(call_id, extra) if is_extra(extra) else None


DETAILS = "reasoning_details"
"""A turn's thoughts in OpenRouter's form, which go back unchanged. They are kept with the turn's first call."""


def with_details(details: list[Any]) -> Raw:
    """The `extra_content` of a call that keeps its turn's thoughts."""
    return Raw(_encode({DETAILS: details})) if details else Raw(b"")


def restore(message: dict[str, Any], call: dict[str, Any], extra: Raw) -> None:
    """Put back what a server gave with a call: into the call, or into its message."""
    if (details := _object(extra).get(DETAILS)) is not None:
        message[DETAILS] = details
    else:
        call["extra_content"] = extra


def is_own(text: str) -> bool:
    """Whether this gateway wrote an opaque text. A server of the text's own protocol would refuse it."""
    return text.startswith(PREFIX)


def is_extra(extra: Raw) -> bool:
    """Whether a value is a JSON object that is not empty and not too long."""
    if not 2 < len(memoryview(extra)) <= MAX_EXTRA:
        return False
    try:
        return bool(_object(extra))
    except MALFORMED_JSON:
        return False


def block(call_id: str, extra: Raw) -> dict[str, Any] | None:
    """The block of a message that keeps a call's `extra_content`. It precedes the call's own block."""
    data = encode(call_id, extra)
    return None if data is None else {"type": "redacted_thinking", "data": data}
