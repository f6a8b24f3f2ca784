"""Reads usage and failures from the responses of servers with the Responses API, which are forwarded unchanged."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw

from adapters.errors import InferenceError
from adapters.types import Usage
from adapters.wire import decoding, error_table, reported_usage, sse
from adapters.wire.error_table import ErrorBody

_WHOLE = (b'"response.completed"', b'"response.incomplete"')
_FAILED = b'"response.failed"'
_OPENINGS = frozenset({
    "response.created", "response.in_progress", "response.queued", "keepalive",
    "response.output_item.added", "response.content_part.added", "response.reasoning_summary_part.added",
})  # fmt: skip
"""Signs of life without output: a reasoning model may be silent for minutes after any of them."""
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None


class _Response(msgspec.Struct):
    output: list[Raw] | None = None
    status: str | None = None
    error: _Error | None = None
    usage: Any = None


class _Event(msgspec.Struct):
    type: Annotated[str, Meta(min_length=1)]
    response: _Response | None = None
    code: str | None = None
    message: str | None = None


_response = msgspec.json.Decoder(_Response).decode
_event = msgspec.json.Decoder(_Event).decode


class _Final(msgspec.Struct):
    type: str
    response: Raw


_final = msgspec.json.Decoder(_Final).decode
_encode = msgspec.json.Encoder().encode


class ResponseEvent(NamedTuple):
    """The relevant part of one event."""

    opening: bool
    """The event precedes all output."""
    last: bool
    usage: Usage | None
    error: InferenceError | None


def usage_of_body(body: bytes) -> Usage | None:
    """Read the usage of a Response. Raises `InferenceError` for a malformed or a failed one."""
    decoded = decoding.decode(_response, body)
    if decoded.status == "failed" or decoded.error is not None:
        raise _failure(decoded.error or _Error())
    if decoded.output is None:
        raise decoding.bad_response("The upstream's response has no `output`.")
    return _usage(decoded)


def read_event(data: bytes) -> ResponseEvent:
    """Read one event. Raises `BackendError`."""
    decoded = decoding.decode(_event, data, "stream")
    error = None
    if decoded.type == "error":
        error = _failure(_Error(decoded.code, decoded.message))
    elif decoded.type == "response.failed":
        error = _failure((decoded.response and decoded.response.error) or _Error())
    usage = _usage(decoded.response) if decoded.response is not None else None
    return ResponseEvent(decoded.type in _OPENINGS, decoded.type in _LAST, usage, error)


def failed_event(event: bytes, message: str, clean: Callable[[bytes], bytes]) -> bytes:
    """An event that reports a failure, with this message. `clean` takes the rest of its JSON."""
    data = sse.data_of(event)
    decoded: dict[str, Any] = msgspec.json.decode(data)
    failure = decoded["response"].get("error") if isinstance(decoded.get("response"), dict) else decoded
    if isinstance(failure, dict) and failure.get("message") not in (None, message):
        failure["message"] = message
        data = _encode(decoded)
    cleaned = clean(data)
    if cleaned == sse.data_of(event):
        return event + b"\n\n"
    return b"event: %b\ndata: %b\n\n" % (decoded["type"].encode(), cleaned)


def _usage(response: _Response) -> Usage | None:
    reported = reported_usage.read(response.usage)
    return None if reported is None else reported.usage


def _failure(error: _Error) -> InferenceError:
    code = error.code or ""
    if code not in error_table.STATUS_OF and (code.startswith("invalid_") or "image" in code):
        return error_table.judged(400, ErrorBody(error.message, code=code))
    return error_table.judged(None, ErrorBody(error.message, code=code))


class NativeEvents:
    """Counts the events of a stream, so that a break can be reported with the next sequence number."""

    __slots__ = ("_failed", "_number", "final")

    done = False

    def __init__(self) -> None:
        self._number = 0
        self._failed = False
        self.final: bytes | None = None
        """The complete Response, after the end."""

    def take(self, piece: bytes) -> bytes:
        """Record whole events, and return them."""
        self._number += piece.count(b"\ndata:") + piece.startswith(b"data:")
        self._failed = self._failed or _FAILED in piece
        if any(mark in piece for mark in _WHOLE):
            self._keep_final(piece)
        return piece

    def _keep_final(self, piece: bytes) -> None:
        for event in piece.split(b"\n\n"):
            data = sse.data_of(event)
            if data and any(mark in data for mark in _WHOLE):
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    decoded = _final(data)
                    self.final = bytes(decoded.response) if decoded.type in _LAST else self.final

    def end(self, counted: Usage) -> bytes:
        """Write no event: the server has ended the stream itself."""
        return b""

    def fail(self, error: InferenceError, counted: Usage) -> bytes:
        """The event that reports a break, unless the server has reported a failure."""
        if self._failed:
            return b""
        fields = {"type": "error", "sequence_number": self._number, "code": error.code, "message": error.message}
        return b"event: error\ndata: %b\n\n" % _encode({**fields, "param": error.param})


# A whole Response as a stream, for servers that do not stream although a client has asked for it.

Object = dict[str, Any]

_decode = msgspec.json.Decoder(Object).decode
_TEXTS = {"output_text": ("output_text", "text"), "refusal": ("refusal", "refusal")}


def events_of_response(body: bytes) -> bytes:
    """Return the events of a Response. Raises `BackendError` for a malformed one."""
    response = decoding.decode(_decode, body)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    last = "incomplete" if response.get("status") == "incomplete" else "completed"
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(event for index, item in enumerate(_objects(response.get("output"))) for event in _item(index, item)),
        {"type": f"response.{last}", "response": response},
    ]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encode({**event, "sequence_number": number}))
        for number, event in enumerate(events)
    )


def _item(index: int, item: Object) -> Iterator[Object]:
    """The events of one item. An item of another type than these has no parts of its own."""
    place, id_ = {"output_index": index}, {"output_index": index, "item_id": item.get("id", "")}
    opening, inner = {**item, "status": "in_progress"} if "status" in item else dict(item), list[Object]()
    if item.get("type") == "message":
        opening["content"] = []
        for number, part in enumerate(_objects(item.get("content"))):
            inner += _part({**id_, "content_index": number}, part)
    elif item.get("type") == "function_call":
        opening["arguments"], arguments = "", item.get("arguments", "")
        inner.append({"type": "response.function_call_arguments.delta", **id_, "delta": arguments})
        named = {"name": item.get("name", ""), "arguments": arguments}
        inner.append({"type": "response.function_call_arguments.done", **id_, **named})
    yield {"type": "response.output_item.added", **place, "item": opening}
    yield from inner
    yield {"type": "response.output_item.done", **place, "item": item}


def _objects(value: Any) -> list[Object]:
    """The objects of a list; anything else is left out."""
    return [each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict)]


def _part(place: Object, part: Object) -> Iterator[Object]:
    kind, field = _TEXTS.get(str(part.get("type")), ("", ""))
    yield {"type": "response.content_part.added", **place, "part": {**part, field: ""} if kind else part}
    if kind:
        more: Object = {"logprobs": part.get("logprobs") or []} if kind == "output_text" else {}
        yield {"type": f"response.{kind}.delta", **place, "delta": part.get(field, ""), **more}
        yield {"type": f"response.{kind}.done", **place, field: part.get(field, ""), **more}
    yield {"type": "response.content_part.done", **place, "part": part}
