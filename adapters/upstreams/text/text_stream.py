"""Streams of text from servers without streams of tensors: each piece becomes a response with one output."""

import codecs

from adapters.http1.client import ClientResponse
from adapters.requests import InferRequest
from adapters.tensors import Inferred, Tensor, join_bytes
from adapters.types import Usage
from adapters.upstreams.event_stream import EventStream
from adapters.upstreams.inferred import event_form, written
from adapters.wire import sse

_MARKS = (b"data:", b"event:", b"id:", b"retry:", b":")
_DONE = b"[DONE]"


class TextStream(EventStream):
    """A stream of text. Its first bytes show whether it has server-sent events: the content type is unreliable."""

    __slots__ = ("_as_events", "_decoder", "_output", "_request")

    parts_count = True

    def __init__(self, response: ClientResponse, request: InferRequest, output: str) -> None:
        super().__init__(response, Usage(rows=request.row_count, exact=True), event_form(request))
        self._request = request
        self._output = output
        self._as_events: bool | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end inside a character

    def _passes_on(self, event: bytes) -> bool:
        raise NotImplementedError  # `_read` does not call this method

    def _read(self, piece: bytes) -> bytes:
        if self._as_events is None and piece:
            self._as_events = piece.startswith(_MARKS)
        texts = self._events(piece) if self._as_events else [self._decoder.decode(piece, final=not piece)]
        self._done = self._done or not piece
        return b"".join([self._event(text) for text in texts if text])

    def _events(self, piece: bytes) -> list[str]:
        data = [sse.data_of(event) for event in self._split(piece or b"\n\n")]
        if _DONE in data:
            self._done = True
            data = data[: data.index(_DONE)]
        return [one.decode("utf-8", "replace") for one in data]

    def _event(self, text: str) -> bytes:
        tensor = Tensor(self._output, "BYTES", (1,), join_bytes([text.encode()]))
        return sse.encode(written(self._request, Inferred(self._request.model, outputs=[tensor])))
