"""A whole message as a stream, for servers that do not stream although a client has asked for it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.wire import decoding
from adapters.wire.anthropic.open_blocks import event

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Object).decode
_DELTAS = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}


def events_of_message(body: bytes) -> bytes:
    """Return the events of a message. Raises `BackendError` for a malformed one."""
    message = decoding.decode(_decode, body)
    content = message.get("content")
    blocks = [block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict)]
    ends = ("stop_reason", "stop_sequence")
    opening = {**message, "content": [], **dict.fromkeys(ends)}
    last = {"delta": {name: message.get(name) for name in ends}, "usage": message.get("usage") or {}}
    inner = [piece for index, block in enumerate(blocks) for piece in _block(index, block)]
    start = event("message_start", {"message": opening})
    return b"".join([start, *inner, event("message_delta", last), event("message_stop", {})])


def _block(index: int, block: Object) -> Iterator[bytes]:
    """The events of one block. A block of another type than these is in its first event."""
    opening, deltas = dict(block), list[Object]()
    field, delta = _DELTAS.get(str(block.get("type")), ("", ""))
    if field and isinstance(text := block.get(field), str):
        opening[field] = ""
        deltas.append({"type": delta, field: text})
        if field == "thinking" and block.get("signature"):
            opening["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif "input" in block:
        opening["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": _encode(block["input"]).decode()})
    yield event("content_block_start", {"index": index, "content_block": opening})
    for each in deltas:
        yield event("content_block_delta", {"index": index, "delta": each})
    yield event("content_block_stop", {"index": index})
