"""Streams of responses over HTTP: each event is one response in JSON."""

from adapters.http1.client import ClientResponse
from adapters.types import OIP_JSON, Form, Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import failure_text, sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import responses as oip_responses


class ResponseStream(EventStream):
    """A stream of one event for each response, until the end of the body. A failure is the last event."""

    __slots__ = ()

    parts_count = True

    def __init__(self, response: ClientResponse, usage: Usage, form: Form = OIP_JSON) -> None:
        super().__init__(response, usage, form)

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if data.startswith(oip_responses.ERROR):
            raise failure_text.model_failure(oip_responses.error_of(data))
        if data and not self._begun:
            oip_responses.check_object(data)  # only the first event: each client checks the others
        return bool(data) or (self._begun and event.startswith(b":"))

    def _over(self) -> None:
        self._done = True


class PromptedStream(ResponseStream):
    """A stream for a prompt from a server of tensors: each response is encoded in the generate extension's format."""

    __slots__ = ()

    def _read(self, piece: bytes) -> bytes:
        events = [event for event in super()._read(piece).split(b"\n\n") if event]
        return b"".join([self._encoded(sse.data_of(event)) for event in events])

    def _encoded(self, data: bytes) -> bytes:
        return sse.encode(oip_generate.encode_generate(oip_responses.decode_response(data, None))) if data else b""
