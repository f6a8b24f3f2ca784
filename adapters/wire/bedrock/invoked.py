"""Anthropic's events as the frames of `InvokeModelWithResponseStream`."""

import base64

from adapters.wire import sse
from adapters.wire.bedrock.event_stream import encode_event

_PIECE = b'{"bytes":"%b"}'


class EventFrames:
    """Encodes each event of a stream of messages as one frame."""

    __slots__ = ("_splitter",)

    def __init__(self) -> None:
        self._splitter = sse.Splitter()

    def take(self, piece: bytes) -> bytes:
        """Return the frames of the events that a piece completes. Comments have none."""
        data = [data for event in self._splitter.feed(piece) if (data := sse.data_of(event))]
        return b"".join([encode_event("chunk", _PIECE % base64.b64encode(each)) for each in data])
