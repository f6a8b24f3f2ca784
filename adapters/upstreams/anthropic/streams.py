"""Streams of a message: forwarded unchanged, or transcoded to a chat's chunks."""

from adapters.errors import InferenceError
from adapters.http1.client import ClientResponse
from adapters.requests import ChatRequest
from adapters.types import ANTHROPIC, BYTES_PER_TOKEN, OPENAI, Form, Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import decoding, sse
from adapters.wire.anthropic import errors
from adapters.wire.anthropic.answers import reported_by
from adapters.wire.anthropic.stream_to_chat import ChatChunks, MessageEvent, read_event
from adapters.wire.anthropic.tools import MAX_NAME, OwnNames
from adapters.wire.reported_usage import UsageReport

ENVELOPE = 90
"""Bytes of an event besides its text."""
_OPENINGS = frozenset({"message_start", "content_block_start", "ping"})
"""Events without output. A model may think for minutes after any of them."""


class MessageStream(EventStream):
    """A stream of a message, forwarded unchanged."""

    __slots__ = ("_opened", "_reported")

    def __init__(
        self, response: ClientResponse, prompt_tokens: int, splitter: sse.EventSplitter, form: Form = ANTHROPIC
    ) -> None:
        super().__init__(response, Usage(prompt_tokens=prompt_tokens), form, splitter)
        self._reported: UsageReport | None = None
        self._opened = self._started = False

    def _passes_on(self, event: bytes) -> bool:
        """Count the tokens of an event. Pings before the start of the message are dropped."""
        data = sse.data_of(event)
        if self._opened and b'"content_block_delta"' in data:
            self._started = True
            self._count(data)
            return True
        if not data:
            return self._started and event.startswith(b":")
        self._read_event(data)
        return self._opened

    def _count(self, data: bytes) -> None:
        """Estimate the tokens of an event; the last events report the exact count."""
        self.usage.completion_tokens += max((len(data) - ENVELOPE) // BYTES_PER_TOKEN, 1)

    def _read_event(self, data: bytes) -> MessageEvent:
        """Decode an event. Raises the typed error of an `error` event."""
        event = read_event(data)
        if event.type == "error":
            raise _failure(data)
        self._started = self._started or (self._opened and event.type not in _OPENINGS)
        if event.type == "message_start":
            self._opened = True
            self._reported = reported_by(event.message.usage) if event.message is not None else None
            if self._reported is not None and (begun := self._reported.usage) is not None:
                self.usage = Usage(begun.prompt_tokens, bytes=self.usage.bytes)
        elif not self._opened and event.type != "ping":
            raise decoding.bad_response("The upstream's stream does not start with a message.")
        elif event.type == "message_delta" and (more := reported_by(event.usage)) is not None:
            self._reported = more.over(self._reported)
            if (usage := self._reported.usage) is not None:
                usage.bytes = self.usage.bytes
                self.usage = usage
        self._done = event.type == "message_stop"
        return event


class ChatStream(MessageStream):
    """A stream that transcodes each event to the equivalent chunks of a chat."""

    __slots__ = ("_chunks", "_words")

    def __init__(
        self, response: ClientResponse, request: ChatRequest, created: int, splitter: sse.EventSplitter
    ) -> None:
        super().__init__(response, request.prompt_tokens, splitter, OPENAI)
        own = OwnNames(request.fields, MAX_NAME)
        self._chunks = ChatChunks(created, include_usage=request.include_usage, name_of=own)
        self._words = b""

    rewords = True

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if not data:
            self._words = event + b"\n\n"
            return self._started and event.startswith(b":")
        decoded = self._read_event(data)
        if decoded.type == "content_block_delta":
            self._count(data)
        self._words = self._chunks.take(decoded, self.usage) if self._opened else b""
        return bool(self._words)

    def _worded(self, event: bytes) -> bytes:
        return self._words


def _failure(data: bytes) -> InferenceError:
    return errors.stream_error(errors.decode_error(data))
