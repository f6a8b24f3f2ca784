"""Translates a chat stream into a message stream: OpenAI's chunks in, Anthropic's events out."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.anthropic.answers import message_id, stop_reason
from adapters.wire.anthropic.open_blocks import OpenBlocks, event
from adapters.wire.anthropic.usage import message_usage
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.chat_usage import ChatUsage

PING = event("ping", {})


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[Raw] | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    matched_stop: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    id: str = ""
    model: str = ""
    usage: ChatUsage | None = None


_chunk = msgspec.json.Decoder(_Chunk).decode


class MessageEvents:
    """One stream. `stops` are the texts that the client had it end at."""

    __slots__ = ("_blocks", "_called", "_cost", "_ended", "_finish", "_matched", "_started", "_stops")

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._blocks = OpenBlocks()
        self._cost: ChatUsage | None = None
        self._finish: str | None = None
        self._matched: tuple[Any, ...] = ()
        self._called = False
        self._started = self._ended = False

    def take(self, piece: bytes, usage: Usage) -> bytes:
        """The events of a message that whole events of the chat become; may be nothing. `usage` counts where the stream
        itself does not. Raises `BackendError` for an event that cannot be decoded."""
        return b"".join([self._event(each, usage) for each in piece.split(b"\n\n") if each])

    def _event(self, written: bytes, usage: Usage) -> bytes:
        data = sse.data_of(written)
        if data == DONE:
            return self.end(usage)
        if not data:
            return PING if self._started else b""
        chunk = decoding.decode(_chunk, data, "stream")
        out = [] if self._started else [self._start(chunk)]
        if chunk.usage is not None:
            self._cost = chunk.usage
        for choice in chunk.choices:
            if not choice.index:
                out += self._choice(choice)
        return b"".join(out)

    def _start(self, chunk: _Chunk) -> bytes:
        """The start event. It has the prompt's tokens if the first chunk reports them."""
        self._started = True
        cost = message_usage(chunk.usage or ChatUsage())
        message: dict[str, Any] = {
            "id": message_id(chunk.id),
            "type": "message",
            "role": "assistant",
            "model": chunk.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": cost,
        }
        return event("message_start", {"message": message})

    def _choice(self, choice: _Choice) -> list[bytes]:
        out, delta, blocks = list[bytes](), choice.delta, self._blocks
        if delta is not None:
            for raw in delta.thinking_blocks or ():
                out += blocks.thought(raw)
            if thinking := delta.reasoning_content or delta.reasoning:
                out += blocks.thinking(thinking)
            if text := delta.content or delta.refusal:
                out += blocks.text(text)
            for call in delta.tool_calls or ():
                self._called = True
                function = call.function or _Function()
                out += blocks.call(call.index, call.id, function.name, function.arguments or "")
        if choice.finish_reason is not None:
            self._finish = choice.finish_reason
            self._matched = (choice.stop_reason, choice.matched_stop)
        return out

    def end(self, usage: Usage) -> bytes:
        """The last events, once."""
        if self._ended or not self._started:
            return b""
        self._ended = True
        reason, sequence = stop_reason(self._finish, self._matched, self._stops)
        if self._called and reason == "end_turn":
            reason = "tool_use"
        cost = self._cost or ChatUsage(usage.prompt_tokens, usage.completion_tokens)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        last = event("message_delta", {"delta": delta, "usage": message_usage(cost)})
        return b"".join([*self._blocks.end(), last, event("message_stop", {})])
