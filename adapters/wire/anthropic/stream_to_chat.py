"""Translates a message stream into a chat stream: Anthropic's events in, OpenAI's chunks out."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.anthropic.answers import finish
from adapters.wire.openai.chat import DONE
from adapters.wire.reported_usage import chat_fields

_NULL = Raw(b"null")
_TEXT = b'data: %b,"choices":[{"index":0,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]%b}\n\n'


class MessageStart(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: Any = None


class MessageDelta(msgspec.Struct):
    """The delta of a block, or of the message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Block(msgspec.Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""


class MessageEvent(msgspec.Struct):
    """Any of them."""

    type: str
    message: MessageStart | None = None
    index: int = 0
    content_block: Raw = _NULL
    delta: MessageDelta | None = None
    usage: Any = None


_encode = msgspec.json.Encoder().encode
_event = msgspec.json.Decoder(MessageEvent).decode
_block = msgspec.json.Decoder(_Block).decode


def read_event(data: bytes) -> MessageEvent:
    """Decode an event. Raises `BackendError` for other data."""
    return decoding.decode(_event, data, "stream")


class ChatChunks:
    """One stream. `created` is in Unix seconds. `name_of` returns the client's name of a tool."""

    __slots__ = ("_call", "_calls", "_created", "_has_arguments", "_head", "_include_usage", "_name_of")

    def __init__(self, created: int, *, include_usage: bool, name_of: Callable[[str], str] = str) -> None:
        self._name_of = name_of
        self._created = created
        self._include_usage = include_usage
        self._head = b""
        self._call: int | None = None
        self._calls = 0
        self._has_arguments = False

    def take(self, event: MessageEvent, usage: Usage) -> bytes:
        """Translate an event into chunks, possibly none. `usage` is the usage that the message has reported so far."""
        match event.type:
            case "content_block_delta" if event.delta is not None:
                return self._more(event.delta)
            case "content_block_start":
                return self._begin(event.content_block)
            case "content_block_stop":
                return self._stop()
            case "message_start" if event.message is not None:
                return self._start(event.message)
            case "message_delta" if event.delta is not None:
                return self._chunk({}, **finish(event.delta.stop_reason, event.delta.stop_sequence))
            case "message_stop":
                return self._end(usage)
            case "ping":
                return b": ping\n\n"
        return b""

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, message: MessageStart) -> bytes:
        about = {"id": message.id, "object": "chat.completion.chunk", "created": self._created, "model": message.model}
        self._head = _encode(about)[:-1]
        return self._chunk({"role": "assistant", "content": ""})

    def _begin(self, raw: Raw) -> bytes:
        block = decoding.decode(_block, raw, "stream")
        self._call = None
        if block.type == "tool_use":
            self._call, self._calls, self._has_arguments = self._calls, self._calls + 1, False
            function = {"name": self._name_of(block.name), "arguments": ""}
            return self._calling({"id": block.id, "type": "function", "function": function})
        if block.type == "redacted_thinking":
            return self._chunk({"thinking_blocks": [raw]})
        return self._more(MessageDelta(f"{block.type}_delta", block.text, block.thinking))

    def text(self, index: int, text: str) -> bytes:
        """A piece of an answer's text as a chunk: most events are one."""
        return _TEXT % (self._opening(), _encode(text), b',"usage":null' if self._include_usage else b"")

    def _more(self, delta: MessageDelta) -> bytes:
        if delta.type == "text_delta":
            return self.text(0, delta.text) if delta.text else b""
        if delta.type == "thinking_delta":
            return self._chunk({"reasoning_content": delta.thinking}) if delta.thinking else b""
        if delta.type == "signature_delta":
            thought = {"type": "thinking", "thinking": "", "signature": delta.signature}
            return self._chunk({"thinking_blocks": [thought]})
        if delta.type == "input_json_delta" and self._call is not None and delta.partial_json:
            self._has_arguments = True
            return self._calling({"function": {"arguments": delta.partial_json}})
        return b""

    def _stop(self) -> bytes:
        """A tool call without arguments has no argument events here, and `{}` in a chat."""
        silent = self._call is not None and not self._has_arguments
        out = self._calling({"function": {"arguments": "{}"}}) if silent else b""
        self._call = None
        return out

    def _end(self, usage: Usage) -> bytes:
        encoded = b""
        if self._include_usage:
            encoded = sse.encode(b'%b,"choices":[],"usage":%b}' % (self._opening(), _encode(chat_fields(usage))))
        return encoded + sse.encode(DONE)

    # ── chunks ────────────────────────────────────────────────────────────────────────────────────────

    def _calling(self, call: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._call, **call}]})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None, **rest: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **rest}
        usage = b',"usage":null' if self._include_usage else b""
        return sse.encode(b'%b,"choices":[%b]%b}' % (self._opening(), _encode(choice), usage))

    def _opening(self) -> bytes:
        if not self._head:
            raise decoding.bad_response("The upstream's stream does not start with a message.")
        return self._head
