"""Streamed responses of servers of OpenAI's family: chunks, and events of Responses."""

import re
from collections.abc import Callable

import msgspec
from msgspec import Raw

from adapters.http1.client import ClientResponse
from adapters.requests import CompletionRequest, GenerateRequest, ResponsesRequest
from adapters.types import Usage
from adapters.upstreams.event_stream import EventStream
from adapters.wire import decoding, sse
from adapters.wire.failure_text import Scrubber
from adapters.wire.openai import chat as wire
from adapters.wire.openai.chat import DONE
from adapters.wire.reported_usage import UsageReport
from adapters.wire.responses import native

_DATA = ord("d")
_FINISHED = re.compile(rb'"finish_reason": ?"')
_THOUGHT = re.compile(rb'"reasoning_content": ?"[^"]')
_END = sse.encode(wire.DONE)


class ChunkStream(EventStream):
    """A stream of chunks, forwarded unchanged except for a usage chunk that only the gateway requested.

    A stream without `[DONE]` is complete if its last choice has finished.
    """

    __slots__ = ("_alone", "_data", "_data_before", "_reported", "_sse", "_swallow_usage")

    def __init__(self, response: ClientResponse, request: GenerateRequest) -> None:
        self._sse = sse.Splitter(response.max_answer)
        super().__init__(response, Usage(prompt_tokens=request.prompt_tokens), splitter=self._sse)
        self._started = False
        self._swallow_usage = not request.include_usage
        self._data_before = self._data = b""
        self._reported: UsageReport | None = None
        several = isinstance(request, CompletionRequest) and bytes(request.prompt[:1]) == b"["
        self._alone = request.n == 1 and not several
        """Whether the request has one choice, so that the first finish_reason is the last."""

    def _passes_on(self, event: bytes) -> bool:
        """Count the usage of an event. False if the client did not request the event."""
        data = sse.data_of(event)
        if data == wire.DONE:
            self._done = True
            return True
        if event[0] != _DATA and (failure := _failure(event, data)):
            raise wire.error_in_body(wire.decode_error(failure), wire.FAILED_MID_STREAM)
        if not data:
            # A comment keeps the client's connection alive, but does not begin a response.
            return self._begun and event.startswith(b":")
        self._data_before, self._data = self._data, data
        # Only two kinds of events are decoded: the first, since no retry is possible after it, and those that may
        # hold usage or an error.
        decoded = b'"error"' in data or data.count(b'"usage"') != data.count(b'"usage":null')
        if self._begun and not decoded:
            self.usage.completion_tokens += 1  # an event has one token; the exact count comes last
            return True
        reported, only_usage = wire.read_event(data)
        self._started = self._started or not is_opening(data)
        usage = None
        if reported is not None:
            self._reported = reported.over(self._reported)
            usage = self._reported.usage
        if usage is not None:
            usage.bytes = self.usage.bytes
            self.usage = usage
        elif not only_usage:
            self.usage.completion_tokens += 1
        return not (only_usage and self._swallow_usage)

    def _read(self, piece: bytes) -> bytes:
        if not piece and self._is_whole():
            self._done = True
            return self._held(_END)
        if self._begun and self._sse.is_between_events and (count := _count_plain(piece)):
            self._pass_plain(piece, count)
            return piece
        return super()._read(piece)

    def write_to(self, writer: Callable[[bytes], bool]) -> None:
        def forward(piece: bytes) -> bool:
            count = _count_plain(piece) if self._sse.is_between_events else 0
            if not count or not writer(piece):
                return False
            self._pass_plain(piece, count)
            self.usage.bytes += len(piece)
            return True

        self._forward = forward

    def _pass_plain(self, piece: bytes, count: int) -> None:
        """Count the tokens of a piece that is forwarded as it was read."""
        events = [piece[:-2]] if count == 1 else piece[:-2].split(b"\n\n")
        self._before_last, self._last = self._last, events
        self._data_before, self._data = events[-2][6:] if count > 1 else self._data, events[-1][6:]
        self.usage.completion_tokens += count

    def _is_whole(self) -> bool:
        """Whether only `[DONE]` or its blank line is missing. Only usage may follow a finish_reason."""
        if sse.data_of(self._sse.rest.strip(b"\n")) == wire.DONE:
            return True
        return self._alone and any(_FINISHED.search(data) for data in (self._data_before, self._data))


class UnrepeatedStream(ChunkStream):
    """A stream of a server that may send a piece of a thought twice, without the repetitions."""

    __slots__ = ()

    def _passes_on(self, event: bytes) -> bool:
        """False for an event with thoughts that equals the event before it."""
        data = sse.data_of(event)
        if data == self._data and _THOUGHT.search(data):
            return False
        return super()._passes_on(event)

    def _read(self, piece: bytes) -> bytes:
        return EventStream._read(self, piece) if piece else super()._read(piece)

    def write_to(self, writer: Callable[[bytes], bool]) -> None:
        """Each event is examined: nothing is forwarded while this stream waits."""


def _count_plain(piece: bytes) -> int:
    """The number of events of a piece of whole chunks without usage and errors; 0 for any other piece."""
    if b'"error"' in piece or piece.count(b'"usage"') != piece.count(b'"usage":null'):
        return 0
    return sse.count_json_lines(piece)


def _failure(event: bytes, data: bytes) -> bytes:
    """Return the data of an event that is an error by its name or by its field; empty for any other event."""
    if event.startswith(b"error:"):
        return event[6:]
    name = event.partition(b"\n")[0]
    return data if name.startswith(b"event:") and name[6:].strip() == b"error" else b""


class ResponsesStream(EventStream):
    """A stream of events of Responses."""

    __slots__ = ("_scrubber",)

    def __init__(self, response: ClientResponse, request: ResponsesRequest, scrubber: Scrubber) -> None:
        super().__init__(response, Usage(prompt_tokens=request.prompt_tokens))
        self._scrubber = scrubber
        self._started = False

    rewords = True

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
            return event + b"\n\n"
        return native.failed_event(event, self._failure.message, self._scrubber.body)


# Recognises chunks that precede a model's output, such as a chunk with a role only.

_NULL = Raw(b"null")
_EMPTY = frozenset({b"null", b'""', b"[]", b"{}"})


class _Choice(msgspec.Struct):
    delta: dict[str, Raw] | None = None
    text: Raw = _NULL
    finish_reason: Raw = _NULL


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Raw = _NULL


_chunk = msgspec.json.Decoder(_Chunk).decode


def is_opening(data: bytes) -> bool:
    """Whether a chunk has no output, no end and no usage of its own."""
    try:
        chunk = _chunk(data)
    except decoding.MALFORMED_JSON:
        return False
    if not chunk.choices:
        return bytes(chunk.usage) in _EMPTY
    for choice in chunk.choices:
        if bytes(choice.text) not in _EMPTY or bytes(choice.finish_reason) not in _EMPTY:
            return False
        for name, value in (choice.delta or {}).items():
            if name != "role" and bytes(value) not in _EMPTY:
                return False
    return True
