"""A stream of a server that supports Responses, forwarded unchanged."""

from adapters.http1.client import ClientResponse
from adapters.requests import ResponsesRequest
from adapters.types import Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import sse
from adapters.wire.failure_text import Scrubber
from adapters.wire.openai.chat import DONE
from adapters.wire.responses import native


class ResponsesStream(EventStream):
    """A stream of events of Responses."""

    __slots__ = ("_scrubber",)

    def __init__(self, response: ClientResponse, request: ResponsesRequest, scrubber: Scrubber) -> None:
        super().__init__(response, Usage(prompt_tokens=request.prompt_tokens))
        self._scrubber = scrubber
        self._started = False

    def _passes_on(self, event: bytes) -> bool:
        if self._failure is not None:
            return False
        data = sse.data_of(event)
        if not data or data == DONE:
            return self._begun and event.startswith(b":")
        decoded = native.read_event(data)
        if decoded.error is not None:
            if not self._started:
                raise decoded.error
            self._failure = self._scrubber.error(decoded.error)  # raised after the client has received the event
            return True
        self._started = self._started or not decoded.opening
        self._done = decoded.last
        if decoded.usage is not None:
            decoded.usage.bytes = self.usage.bytes
            self.usage = decoded.usage
        elif not decoded.opening:
            self.usage.completion_tokens += 1  # an estimate; the last event reports the count
        return True

    def _worded(self, event: bytes) -> bytes:
        if self._failure is None:
            return super()._worded(event)
        return native.failed_event(event, self._failure.message, self._scrubber.body)
