"""A stream of a server that supports Responses, forwarded unchanged."""

from adapters.http1.client import ClientResponse
from adapters.requests import ResponsesRequest
from adapters.types import Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import sse
from adapters.wire.openai.chat import DONE
from adapters.wire.responses import native


class ResponsesStream(EventStream):
    """A stream that begins with the model's output: opening events, which precede generation, are held back."""

    __slots__ = ("_opening", "_said")

    def __init__(self, response: ClientResponse, request: ResponsesRequest) -> None:
        super().__init__(response, Usage(prompt_tokens=request.prompt_tokens))
        self._opening = b""
        self._said = False

    def _passes_on(self, event: bytes) -> bool:
        if self._failure is not None:
            return False
        data = sse.data_of(event)
        if not data or data == DONE:
            return self._begun and event.startswith(b":")
        told = native.read_event(data)
        if told.error is not None:
            if not self._said:
                raise told.error
            self._failure = told.error  # raised after the client has received the event
            return True
        self._said = self._said or not told.opening
        self._done = told.last
        if told.usage is not None:
            told.usage.bytes = self.usage.bytes
            self.usage = told.usage
        elif not told.opening:
            self.usage.completion_tokens += 1  # an estimate; the last event reports the count
        return True

    def _read(self, piece: bytes) -> bytes:
        out = self._opening + super()._read(piece)
        self._opening = b"" if self._said else out
        return out if self._said else b""
