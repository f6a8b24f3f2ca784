"""Translates a chat stream into a message stream: OpenAI's chunks in, Anthropic's events out."""

from collections.abc import Callable
from typing import Any

from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.anthropic.answers import stop_of
from adapters.wire.anthropic.open_blocks import OpenBlocks, event, new_message
from adapters.wire.anthropic.usage import message_usage
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.chat_reader import ChatReader

PING = event("ping", {})


class MessageEvents:
    """One stream. `stops` are the texts that the client had it end at. `model` applies if the server names none, and
    `name_of` returns the client's name of a tool."""

    __slots__ = ("_blocks", "_ended", "_message", "_model", "_reader", "_started", "_stops")

    def __init__(self, stops: list[str], model: str = "", name_of: Callable[[str], str] = str) -> None:
        self._stops = stops
        self._model = model
        self._reader = ChatReader()
        self._message = new_message()
        self._blocks = OpenBlocks(self._message["id"].removeprefix("msg_"), name_of)
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
        for part in self._reader.read_chunk(data):
            self._blocks.add(part)
        # The first chunk of some servers has neither a choice nor the model's name.
        return self._start() + self._blocks.flush() if self._reader.has_choice else b""

    def _start(self) -> bytes:
        """The start event, once. It has the prompt's tokens if the first chunk reports them."""
        if self._started:
            return b""
        self._started = True
        reported = self._reader.reported
        usage = message_usage((reported and reported.usage) or Usage())
        message: dict[str, Any] = {**self._message, "model": self._reader.model or self._model, "usage": usage}
        return event("message_start", {"message": message})

    def end(self, usage: Usage) -> bytes:
        """The last events, once. Raises `BackendError` for a tool call without a name."""
        if self._ended:
            return b""
        for part in self._reader.end():
            self._blocks.add(part)
        self._ended = True
        reported = self._reader.reported
        counted = message_usage((reported and reported.usage) or usage)
        last = event("message_delta", {"delta": stop_of(self._reader, self._stops), "usage": counted})
        return b"".join([self._start(), self._blocks.flush(is_last=True), last, event("message_stop", {})])
