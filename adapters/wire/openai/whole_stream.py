"""A whole answer as a stream, for servers that do not stream although a client has asked for it."""

from typing import Any

import msgspec

from adapters.wire import decoding, sse

DONE = b"[DONE]"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def events_of(body: bytes, *, include_usage: bool) -> bytes:
    """Return the events of an answer that has `choices`. Raises `BackendError` for a malformed one."""
    answer = decoding.decode(_decode, body)
    about = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    if about.get("object") == "chat.completion":
        about["object"] = "chat.completion.chunk"
    choices = [choice for choice in answer.get("choices") or () if isinstance(choice, dict)]
    events = [
        {**about, "choices": [_opening(choice) for choice in choices]},
        {**about, "choices": [_end(choice) for choice in choices]},
    ]
    if include_usage and answer.get("usage") is not None:
        events.append({**about, "choices": [], "usage": answer["usage"]})
    return b"".join(sse.encode(_encode(event)) for event in events) + sse.encode(DONE)


def _opening(choice: dict[str, Any]) -> dict[str, Any]:
    """The chunk of a choice with its whole content."""
    opening = {**choice, "finish_reason": None}
    if not isinstance(message := opening.pop("message", None), dict):
        return opening
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [{"index": index, **call} for index, call in enumerate(calls) if isinstance(call, dict)]
        message = {**message, "tool_calls": numbered}
    return {**opening, "delta": message}


def _end(choice: dict[str, Any]) -> dict[str, Any]:
    """The chunk that ends a choice."""
    empty: dict[str, Any] = {"delta": {}} if "message" in choice else {"text": ""}
    return {"index": choice.get("index", 0), **empty, "finish_reason": choice.get("finish_reason")}
