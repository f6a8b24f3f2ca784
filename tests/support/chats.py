"""Chat completions as servers write them, whole and in chunks."""

import json
from typing import Any

USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 6},
}
DONE = b"data: [DONE]\n\n"


def completion(content: str | None = "Hello!", finish: str = "stop", **message: Any) -> bytes:
    """A whole answer. `message` has more fields of the message."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps({**body, "usage": USAGE}).encode()


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> bytes:
    """An event of a stream; without a choice if `delta` is None. `more` has more fields of the choice."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, **fields.pop("more", {})}]
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps({**body, **fields}).encode() + b"\n\n"


HELLO = (chunk({"content": "Hel"}), chunk({"content": "lo!"}), chunk({}, "stop"), DONE)
"""The stream of "Hello!"."""
