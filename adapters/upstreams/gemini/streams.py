"""Streams of Gemini's answers: forwarded unchanged, or transcoded to a chat's chunks.

The stream has no last event. It ends with its connection, after a chunk with the reason of its end. An error arrives as
an event, or as plain JSON in the place of an event.
"""

from collections.abc import Callable

from adapters.errors import BackendError, InferenceError
from adapters.http1.client import ClientResponse
from adapters.requests import ChatRequest
from adapters.types import BYTES_PER_TOKEN, OPENAI, Form, Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import sse
from adapters.wire.decoding import BAD_RESPONSE
from adapters.wire.gemini import errors
from adapters.wire.gemini.answers import AnswerSoFar, ContentAnswer, read
from adapters.wire.gemini.content_to_chat import ContentChunks

ENVELOPE = 120
"""Bytes of an event besides its text."""


def _whole_events(piece: bytes) -> list[bytes]:
    """The events of a piece that consists of whole events of one line; none for any other piece."""
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n")
    if not piece.startswith(b"data: ") or not piece.endswith(b"\n\n") or b"\r" in piece:
        return []
    events = piece[:-2].split(b"\n\n")
    is_plain = all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    return events if is_plain else []


class GeminiStream(EventStream):
    """A stream of Gemini's own chunks, forwarded unchanged."""

    __slots__ = ("_so_far", "_sse")

    def __init__(self, response: ClientResponse, prompt_tokens: int, form: Form) -> None:
        self._sse = sse.Splitter(response.max_answer)
        super().__init__(response, Usage(prompt_tokens=prompt_tokens), form=form, splitter=self._sse)
        self._so_far = AnswerSoFar()

    def write_to(self, writer: Callable[[bytes], bool]) -> None:
        def forward(piece: bytes) -> bool:
            if not self._begun or self._failure is not None or not self._sse.is_between_events:
                return False
            events = _whole_events(piece)
            try:
                answers = [read(event[6:], "stream") for event in events]
            except InferenceError:
                return False  # the stream's reader raises it
            words = [self._plain(answered, event) for answered, event in zip(answers, events, strict=True)]
            written = b"".join([each for each in words if each is not None])
            if not words or None in words or not writer(written):
                return False
            for answered, event in zip(answers, events, strict=True):
                self._note(answered, event[6:])
            self._before_last, self._last = self._last, events
            self.usage.bytes += len(written)
            return True

        self._forward = forward

    def _plain(self, answered: ContentAnswer, event: bytes) -> bytes | None:
        """The client's bytes of an event, if it changes no state but the counts; else None."""
        return event + b"\n\n"

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if not data:
            if event[:1] in (b"{", b"["):
                raise errors.typed(None, event)
            return False
        self._note(read(data, "stream"), data)
        return True

    def _note(self, answered: ContentAnswer, data: bytes) -> None:
        """Count the tokens of a chunk, and note the end of the answer."""
        so_far, usage = self._so_far, None
        before = so_far.counts
        so_far.add(answered)
        if so_far.counts is not None and so_far.counts is not before:
            usage = so_far.counts.usage
        if usage is None:
            self.usage.completion_tokens += max((len(data) - ENVELOPE) // BYTES_PER_TOKEN, 1)
        else:
            usage.bytes = self.usage.bytes
            self.usage = usage

    def _read(self, piece: bytes) -> bytes:
        if piece:
            return super()._read(piece)
        last = self._trailing() if self._splitter.halfway else b""
        if not self._so_far.is_complete:
            self._over()
        self._done = True
        return last + self._ending()

    def _trailing(self) -> bytes:
        """The client's bytes of an event that ends with the connection. Raises the typed error of an error."""
        try:
            return super()._read(b"\n\n")
        except BackendError as error:
            if error.code == BAD_RESPONSE:  # a part of an event
                self._over()
            raise

    def _ending(self) -> bytes:
        """The last events for the client."""
        return b""


class GeminiChatStream(GeminiStream):
    """A stream that transcodes each chunk to those of a chat."""

    __slots__ = ("_chunks", "_words")

    def __init__(self, response: ClientResponse, request: ChatRequest, chunks: ContentChunks) -> None:
        super().__init__(response, request.prompt_tokens, OPENAI)
        self._chunks = chunks
        self._words = b""

    rewords = True

    def _plain(self, answered: ContentAnswer, event: bytes) -> bytes | None:
        return self._chunks.plain(answered)

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if not data:
            return super()._passes_on(event)
        answered = read(data, "stream")
        self._note(answered, data)
        self._words = self._chunks.take(answered)
        return bool(self._words)

    def _worded(self, event: bytes) -> bytes:
        return self._words

    def _ending(self) -> bytes:
        return self._chunks.end(self.usage)
