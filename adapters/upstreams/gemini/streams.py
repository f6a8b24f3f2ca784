"""Streams of Gemini's answers: forwarded unchanged, or transcoded to a chat's chunks.

The stream has no last event. It ends with its connection, after a chunk with the reason of its end. An error arrives as
an event, or as plain JSON in the place of an event.
"""

from adapters.errors import BackendError
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


class GeminiStream(EventStream):
    """A stream of Gemini's own chunks, forwarded unchanged."""

    __slots__ = ("_so_far",)

    def __init__(self, response: ClientResponse, prompt_tokens: int, form: Form) -> None:
        super().__init__(response, Usage(prompt_tokens=prompt_tokens), form=form)
        self._so_far = AnswerSoFar()

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
