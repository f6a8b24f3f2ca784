"""Messages as answers of Converse: a whole one, and the frames of a stream."""

from collections.abc import Callable
from typing import Any

import msgspec

from adapters.wire import sse
from adapters.wire.bedrock.event_stream import encode_event

Object = dict[str, Any]

_REASONS = {"refusal": "content_filtered", "pause_turn": "end_turn"}
"""All other reasons have the same name."""
_USAGE = {
    "input_tokens": "inputTokens", "output_tokens": "outputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens", "cache_creation_input_tokens": "cacheWriteInputTokens",
}  # fmt: skip

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def answer_of(body: bytes, milliseconds: int) -> bytes:
    """The answer for a whole message, which took so long."""
    message = _decode(body)
    content = [made for block in message["content"] if (made := _block(block)) is not None]
    return _encode(
        {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _reason(message),
            "usage": _usage(message.get("usage") or {}),
            "metrics": {"latencyMs": milliseconds},
        }
    )


def count_of(body: bytes) -> bytes:
    """The answer of CountTokens for that of a count of a message's tokens."""
    return _encode({"inputTokens": _decode(body)["input_tokens"]})


def _reason(message: Object) -> str:
    reason = message.get("stop_reason") or "end_turn"
    return _REASONS.get(reason, reason)


def _usage(reported: Object) -> Object:
    usage = {ours: reported[theirs] for theirs, ours in _USAGE.items() if reported.get(theirs) is not None}
    return {**usage, "totalTokens": sum(usage.values())}


def _block(block: Object) -> Object | None:
    """A block; None for one without an equivalent, such as a call of a server's tool."""
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "tool_use":
            return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
        case "thinking":
            text = {"text": block["thinking"], "signature": block.get("signature") or ""}
            return {"reasoningContent": {"reasoningText": {name: value for name, value in text.items() if value}}}
        case "redacted_thinking":
            return {"reasoningContent": {"redactedContent": block["data"]}}
    return None


class ConverseFrames:
    """Encodes the events of a message as the frames of `ConverseStream`."""

    __slots__ = ("_milliseconds", "_reason", "_splitter", "_usage")

    def __init__(self, milliseconds: Callable[[], int]) -> None:
        """`milliseconds` returns how long the request has run."""
        self._milliseconds = milliseconds
        self._splitter = sse.Splitter()
        self._reason = "end_turn"
        self._usage: Object = {}

    def take(self, piece: bytes) -> bytes:
        """Return the frames of the events that a piece completes."""
        frames: list[tuple[str, Object]] = []
        for event in self._splitter.feed(piece):
            if data := sse.data_of(event):
                frames += self._frames(_decode(data))
        return b"".join([encode_event(name, _encode(payload)) for name, payload in frames])

    def _frames(self, event: Object) -> list[tuple[str, Object]]:
        at = {"contentBlockIndex": event.get("index", 0)}
        match event["type"]:
            case "message_start":
                self._note(event["message"].get("usage"))
                return [("messageStart", {"role": "assistant"})]
            case "content_block_start":
                return _opening(event["content_block"], at)
            case "content_block_delta":
                delta = _delta(event["delta"])
                return [] if delta is None else [("contentBlockDelta", {**at, "delta": delta})]
            case "content_block_stop":
                return [("contentBlockStop", at)]
            case "message_delta":
                self._reason = _reason(event["delta"])
                self._note(event.get("usage"))
            case "message_stop":
                metadata = {"usage": _usage(self._usage), "metrics": {"latencyMs": self._milliseconds()}}
                return [("messageStop", {"stopReason": self._reason}), ("metadata", metadata)]
        return []

    def _note(self, usage: Object | None) -> None:
        self._usage |= {name: value for name, value in (usage or {}).items() if value is not None}


def _opening(block: Object, at: Object) -> list[tuple[str, Object]]:
    """Only calls have a frame for their start. A redacted thought comes whole."""
    if block["type"] == "tool_use":
        start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
        return [("contentBlockStart", {**at, "start": start})]
    if block["type"] == "redacted_thinking":
        return [("contentBlockDelta", {**at, "delta": {"reasoningContent": {"redactedContent": block["data"]}}})]
    return []


def _delta(delta: Object) -> Object | None:
    match delta["type"]:
        case "text_delta":
            return {"text": delta["text"]}
        case "input_json_delta":
            return {"toolUse": {"input": delta["partial_json"]}}
        case "thinking_delta":
            return {"reasoningContent": {"text": delta["thinking"]}}
        case "signature_delta":
            return {"reasoningContent": {"signature": delta["signature"]}}
    return None
