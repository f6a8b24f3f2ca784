"""Streams of responses over HTTP: one event a response, which is JSON."""

from adapters.base import Answer
from adapters.http1.client import ClientResponse
from adapters.types import OIP_JSON, Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import model_failures, sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import responses as oip_responses


class ResponseStream(EventStream):
    """One event a response, until the end of the body. A failure is an event too, and the last."""

    __slots__ = ()

    parts_count = True

    def __init__(self, response: ClientResponse, usage: Usage) -> None:
        super().__init__(response, usage, OIP_JSON)

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if data.startswith(oip_responses.ERROR):
            raise model_failures.failed(oip_responses.error_of(data))
        if data and not self._begun:
            oip_responses.check_object(data)  # of the others each client sees for itself
        return bool(data) or (self._begun and event.startswith(b":"))

    def _over(self) -> None:
        self._done = True


class PromptedStream(ResponseStream):
    """To a prompt, of responses that are tensors: each is told as the prompt's extension has it."""

    __slots__ = ()

    def _read(self, piece: bytes) -> bytes:
        events = [event for event in super()._read(piece).split(b"\n\n") if event]
        return b"".join([self._told(sse.data_of(event)) for event in events])

    def _told(self, data: bytes) -> bytes:
        return sse.encode(oip_generate.encode_generate(oip_responses.decode_response(data, None))) if data else b""


class OneEvent(Answer):
    """A whole response as a stream."""

    __slots__ = ("_event",)

    def __init__(self, event: bytes, usage: Usage) -> None:
        super().__init__(content_type="text/event-stream", body=None, usage=usage, form=OIP_JSON)
        self._event = event

    async def __anext__(self) -> bytes:
        event, self._event = self._event, b""
        if event:
            return event
        self.end(None)
        raise StopAsyncIteration
