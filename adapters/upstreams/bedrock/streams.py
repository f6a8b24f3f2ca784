"""Converse's streams, transcoded to the chunks of a chat or to the events of a message."""

from collections.abc import Callable
from typing import Protocol

from adapters.errors import BackendError, InferenceError, TransportError
from adapters.http1.client import ClientResponse
from adapters.requests import ChatRequest
from adapters.types import BYTES_PER_TOKEN, Form, Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire.anthropic.errors import stream_error
from adapters.wire.anthropic.stream_to_chat import MessageEvent, MessageStart
from adapters.wire.bedrock import errors
from adapters.wire.bedrock.converse_events import ConverseEvents
from adapters.wire.bedrock.converse_to_message import usage_of
from adapters.wire.bedrock.event_stream import BrokenFrame, FrameSplitter, StreamFrame


class Writer(Protocol):
    """Encodes the events of a message in the client's wire."""

    def take(self, event: MessageEvent, usage: Usage, /) -> bytes: ...


class ConverseStream(EventStream):
    """One stream. `start` has the message's id and the model's name; `names` returns the client's name of a tool."""

    __slots__ = ("_events", "_frames", "_start", "_writer")

    def __init__(
        self,
        response: ClientResponse,
        request: ChatRequest,
        start: MessageStart,
        writer: Writer,
        form: Form,
        names: Callable[[str], str],
    ) -> None:
        super().__init__(response, Usage(prompt_tokens=request.prompt_tokens), form=form)
        self._frames = FrameSplitter(response.max_answer)
        self._events = ConverseEvents(names)
        self._start: MessageStart | None = start
        self._writer = writer
        self._started = False

    def _read(self, piece: bytes) -> bytes:
        """Return the client's bytes of a piece of the response; may be empty."""
        out = list[bytes]()
        try:
            if piece:
                for frame in self._frames.feed(piece):
                    if (written := self._written(frame)) and not self._done:
                        self._note(written)
                        out.append(written)
                    self._done = self._events.is_over
            else:
                out.append(self._last_written())
        except BrokenFrame as error:
            self._fail_with(BackendError(f"The upstream's stream cannot be read: {error}."), out)
        except InferenceError as failure:
            self._fail_with(failure, out)
        joined = out[0] if len(out) == 1 else b"".join(out)
        return joined if self._started and not self._opening else self._held(joined)

    def _fail_with(self, failure: InferenceError, out: list[bytes]) -> None:
        """Raise a failure, after the events before it if the answer has begun."""
        if not (out and self._begun):
            raise failure
        self._failure = failure

    def _written(self, frame: StreamFrame) -> bytes:
        """The client's bytes for a frame. Raises the typed error of an exception."""
        if frame.kind != "event":
            raise stream_error(errors.of_frame(frame))
        begun = b""
        if self._start is not None:
            if frame.event != "messageStart":
                raise BackendError("The upstream's stream does not start with a message.", code="upstream_bad_response")
            begun = self._writer.take(MessageEvent("message_start", message=self._start), self.usage)
            self._start = None
            return begun
        return self._encoded(self._events.take(frame))

    def _encoded(self, events: list[MessageEvent]) -> bytes:
        if not events:
            return b""
        self._started = True
        usage = self.usage
        if self._events.is_over and (reported := usage_of(self._events.report)) is not None:
            reported.bytes = usage.bytes
            self.usage = usage = reported
        elif not usage.exact:
            usage.completion_tokens = self._events.characters // BYTES_PER_TOKEN + 1
        if len(events) == 1:
            return self._writer.take(events[0], usage)
        return b"".join([self._writer.take(event, usage) for event in events])

    def _last_written(self) -> bytes:
        """The last events at the end of the response. The usage may be missing, but not the end of the answer."""
        if self._frames.halfway:
            raise TransportError("The upstream's stream ended inside an event.")
        if not self._events.has_stopped:
            self._over()
        written = self._encoded(self._events.end())
        self._done = True
        return written

    def _note(self, written: bytes) -> None:
        """Keep the first events and the last ones as excerpts."""
        if not self._head:
            self._head = written
        self._before_last, self._last = self._last, [written]
