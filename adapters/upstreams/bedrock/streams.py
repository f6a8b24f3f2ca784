"""Converse's streams, transcoded to the chunks of a chat or to the events of a message."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from adapters.errors import InferenceError, TransportError
from adapters.http1.client import ClientResponse
from adapters.requests import ChatRequest
from adapters.types import BYTES_PER_TOKEN, Form, Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import decoding
from adapters.wire.anthropic.errors import stream_error
from adapters.wire.anthropic.stream_to_chat import MessageEvent, MessageStart
from adapters.wire.bedrock import errors
from adapters.wire.bedrock.converse_events import ConverseEvents
from adapters.wire.bedrock.converse_to_message import usage_of
from adapters.wire.bedrock.event_stream import BrokenFrame, FrameSplitter, StreamFrame


class Writer(Protocol):
    """Encodes the events of a message in the client's wire."""

    def take(self, event: MessageEvent, usage: Usage, /) -> bytes: ...

    def text(self, index: int, text: str, /) -> bytes: ...


class _Ahead(NamedTuple):
    """A piece that was transcoded before it was read, and what followed from it."""

    size: int
    written: bytes
    is_done: bool
    failure: InferenceError | None


class ConverseStream(EventStream):
    """One stream. `start` has the message's id and the model's name; `names` returns the client's name of a tool."""

    __slots__ = ("_ahead", "_events", "_frames", "_plain", "_start", "_writer")

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
        self._plain: Mapping[str, str] | None = None
        """The headers of all events that may be a piece of text."""
        self._ahead: _Ahead | None = None

    def write_to(self, writer: Callable[[bytes], bool]) -> None:
        def forward(piece: bytes) -> bool:
            if not self._begun or self._opening or self._done or self._failure is not None:
                return False
            written, failure, self._failure = self._transcoded(piece), self._failure, None
            is_done, self._done = self._done, False
            if failure is None and not is_done and (not written or writer(written)):
                self.usage.bytes += len(written)
                return True
            self._ahead = _Ahead(len(piece), written, is_done, failure)
            return False

        self._forward = forward

    def _read(self, piece: bytes) -> bytes:
        """Return the client's bytes of a piece of the response; may be empty."""
        written = b""
        if (ahead := self._ahead) is not None:
            self._ahead, self._done, self._failure = None, ahead.is_done, ahead.failure
            written, piece = ahead.written, piece[ahead.size :]
            if self._done or self._failure is not None or not piece:
                return self._raised(written)
        written += self._transcoded(piece) if piece else self._last_written()
        if not written:
            self._raised(written)
        return written if self._started and not self._opening else self._held(written)

    def _raised(self, written: bytes) -> bytes:
        """The bytes before a failure; raises the failure if there are none."""
        if self._failure is not None and not written:
            raise self._failure
        return written

    def _transcoded(self, piece: bytes) -> bytes:
        """Transcode the frames that a piece completes. A failure follows the events before it if the answer has begun;
        before that it is raised."""
        out, events, writer = list[bytes](), self._events, self._writer
        try:
            for frame in self._frames.feed(piece):
                if self._done:
                    break
                if frame.headers is self._plain and (text := events.more_text(frame.payload)) is not None:
                    out.append(writer.text(events.index, text))
                elif written := self._written(frame):
                    out.append(written)
                self._done = events.is_over
        except BrokenFrame as error:
            self._failure = decoding.bad_response(f"The upstream's stream cannot be read: {error}.")
        except InferenceError as failure:
            self._failure = failure
        if self._failure is not None and not self._begun:
            raise self._failure
        if out:
            self._note(out)
        if not self.usage.exact:
            self.usage.completion_tokens = (events.characters + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN
        return out[0] if len(out) == 1 else b"".join(out)

    def _written(self, frame: StreamFrame) -> bytes:
        """The client's bytes for a frame. Raises the typed error of an exception."""
        if frame.kind != "event":
            raise stream_error(errors.of_frame(frame))
        if self._start is not None:
            if frame.event != "messageStart":
                raise decoding.bad_response("The upstream's stream does not start with a message.")
            begun = self._writer.take(MessageEvent("message_start", message=self._start), self.usage)
            self._start = None
            return begun
        if frame.event == "contentBlockDelta":
            self._plain = frame.headers
        return self._encoded(self._events.take(frame))

    def _encoded(self, events: list[MessageEvent]) -> bytes:
        if not events:
            return b""
        self._started = True
        if self._events.is_over and (reported := usage_of(self._events.report)) is not None:
            reported.bytes = self.usage.bytes
            self.usage = reported
        return b"".join([self._writer.take(event, self.usage) for event in events])

    def _last_written(self) -> bytes:
        """The last events at the end of the response. The usage may be missing, but not the end of the answer."""
        if self._frames.halfway:
            raise TransportError("The upstream's stream ended inside an event.")
        if not self._events.has_stopped:
            self._over()
        written = self._encoded(self._events.end())
        self._done = True
        return written

    def _note(self, out: list[bytes]) -> None:
        """Keep the first events and the last ones as excerpts."""
        if not self._head:
            self._head = out[0]
        self._before_last, self._last = self._last, out
