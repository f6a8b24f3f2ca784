"""Translates a stream of Converse into the events of a message, and encodes those for a client of Messages."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding
from adapters.wire.anthropic.answers import message_usage
from adapters.wire.anthropic.open_blocks import event
from adapters.wire.anthropic.stream_to_chat import MessageDelta, MessageEvent
from adapters.wire.bedrock.converse_to_message import ConverseCall, ReasoningContent, ending, head, usage_fields
from adapters.wire.bedrock.event_stream import StreamFrame

Object = dict[str, Any]


class _Start(msgspec.Struct):
    toolUse: ConverseCall | None = None  # noqa: N815


class _BlockStart(msgspec.Struct):
    contentBlockIndex: int = 0  # noqa: N815
    start: _Start | None = None


class _CallDelta(msgspec.Struct):
    input: str = ""


class _Piece(msgspec.Struct):
    text: str | None = None
    toolUse: _CallDelta | None = None  # noqa: N815
    reasoningContent: ReasoningContent | None = None  # noqa: N815


class _BlockDelta(msgspec.Struct):
    delta: _Piece
    contentBlockIndex: int = 0  # noqa: N815


class _Stop(msgspec.Struct):
    stopReason: str = ""  # noqa: N815
    additionalModelResponseFields: Any = None  # noqa: N815


class _Metadata(msgspec.Struct):
    usage: Any = None


_block_start = msgspec.json.Decoder(_BlockStart).decode
_block_delta = msgspec.json.Decoder(_BlockDelta).decode
_stop = msgspec.json.Decoder(_Stop).decode
_metadata = msgspec.json.Decoder(_Metadata).decode
_encode = msgspec.json.Encoder().encode

_TEXT_DELTA = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%b}}\n\n'
)
_OPENINGS = {
    "text": Raw(b'{"type":"text","text":""}'),
    "thinking": Raw(b'{"type":"thinking","thinking":"","signature":""}'),
}


MOST_COLLECTED = 4 * 1024**2
"""Bytes of a signature or of redacted thoughts, which are sent on whole."""
_PIECE = 64
"""Bytes of memory that a piece takes besides its text."""


class ConverseEvents:
    """One stream. Texts and thoughts have no start here, and a message's end comes with the usage after it."""

    __slots__ = (
        "_end",
        "_held",
        "_kind",
        "_name_of",
        "_place",
        "_redacted",
        "_signature",
        "_size",
        "characters",
        "has_stopped",
        "index",
        "is_over",
        "report",
    )

    def __init__(self, name_of: Callable[[str], str] = str) -> None:
        """`name_of` returns the client's name of a tool."""
        self._name_of = name_of
        self._kind = ""
        """The type of the open block; empty without one."""
        self._place = -1
        """The open block's index in Converse, where blocks without an equivalent count too."""
        self.index = -1
        """The open block's index in the message."""
        self._signature = list[str]()
        self._redacted = list[str]()
        self._size = 0
        """Bytes of the pieces that are collected."""
        self._end: Object = {}
        self.characters = 0
        """Characters of the answer so far."""
        self.has_stopped = self.is_over = False
        """Whether the model has ended its answer, and whether the stream has."""
        self.report: Any = None
        """The `usage` of Converse."""

    def more_text(self, payload: bytes) -> str | None:
        """The text of a `contentBlockDelta` that continues the open text; None for any other. Most events are one."""
        piece = decoding.decode(_block_delta, payload, "stream")
        text = piece.delta.text
        if not text or self._kind != "text" or self._place != piece.contentBlockIndex:
            return None
        self.characters += len(text)
        return text

    def take(self, frame: StreamFrame) -> list[MessageEvent]:
        """The events of a message for one event of Converse. Raises `BackendError` for one that cannot be read."""
        match frame.event:
            case "contentBlockDelta":
                return self._more(decoding.decode(_block_delta, frame.payload, "stream"))
            case "contentBlockStart":
                return self._begin(decoding.decode(_block_start, frame.payload, "stream"))
            case "contentBlockStop":
                return self._close()
            case "messageStop":
                stop = decoding.decode(_stop, frame.payload, "stream")
                self._end = ending(stop.stopReason, stop.additionalModelResponseFields)
                self.has_stopped = True
                return self._close()
            case "metadata":
                self.report = decoding.decode(_metadata, frame.payload, "stream").usage
                return self.end()
        return []

    def end(self) -> list[MessageEvent]:
        """The last events, once the model has ended its answer."""
        if not self.has_stopped or self.is_over:
            return []
        self.is_over = True
        delta = MessageDelta(stop_reason=self._end["stop_reason"], stop_sequence=self._end["stop_sequence"])
        return [MessageEvent("message_delta", delta=delta, usage=self.report), MessageEvent("message_stop")]

    def _begin(self, start: _BlockStart) -> list[MessageEvent]:
        call = None if start.start is None else start.start.toolUse
        if call is None:
            return []
        opening = {"type": "tool_use", "id": call.toolUseId, "name": self._name_of(call.name), "input": {}}
        return self._open("tool_use", start.contentBlockIndex, Raw(_encode(opening)))

    def _more(self, piece: _BlockDelta) -> list[MessageEvent]:
        delta, place = piece.delta, piece.contentBlockIndex
        if delta.text is not None:
            return self._continue("text", place, MessageDelta("text_delta", text=delta.text), len(delta.text))
        if delta.toolUse is not None:
            if self._kind != "tool_use" or self._place != place:
                return []  # a tool of another kind, whose start had no equivalent
            text = delta.toolUse.input
            self.characters += len(text)
            given = MessageDelta("input_json_delta", partial_json=text)
            return [MessageEvent("content_block_delta", index=self.index, delta=given)]
        if (thought := delta.reasoningContent) is None:
            return []
        if thought.redactedContent:
            opened = [] if self._is_open("redacted", place) else self._close()
            self._kind, self._place = "redacted", place
            self._collect(self._redacted, thought.redactedContent)
            return opened
        events = self._continue(
            "thinking", place, MessageDelta("thinking_delta", thinking=thought.text), len(thought.text)
        )
        if thought.signature:
            self._collect(self._signature, thought.signature)
        return events

    def _collect(self, pieces: list[str], piece: str) -> None:
        """Add a piece of the open block. Raises `BackendError` for a block that does not end."""
        self._size += len(piece) + _PIECE
        if self._size > MOST_COLLECTED:
            raise decoding.bad_response("The upstream's stream has thoughts or a signature of more than 4 MiB.")
        pieces.append(piece)

    def _is_open(self, kind: str, place: int) -> bool:
        return self._kind == kind and self._place == place

    def _continue(self, kind: str, place: int, delta: MessageDelta, length: int) -> list[MessageEvent]:
        """Add to the block of this kind and place, which begins here if it is not open."""
        self.characters += length
        opened = [] if self._is_open(kind, place) else self._open(kind, place, _OPENINGS[kind])
        return [*opened, MessageEvent("content_block_delta", index=self.index, delta=delta)] if length else opened

    def _open(self, kind: str, place: int, opening: Raw) -> list[MessageEvent]:
        closed = self._close()
        self._kind, self._place, self.index = kind, place, self.index + 1
        return [*closed, MessageEvent("content_block_start", index=self.index, content_block=opening)]

    def _close(self) -> list[MessageEvent]:
        """End the open block. A signature and redacted thoughts are sent whole, so they come here."""
        kind, self._kind, events = self._kind, "", list[MessageEvent]()
        self._size = 0
        if not kind:
            return []
        if kind == "redacted":
            self.index += 1
            opening = {"type": "redacted_thinking", "data": _joined(self._redacted)}
            self._redacted.clear()
            events.append(MessageEvent("content_block_start", index=self.index, content_block=Raw(_encode(opening))))
        elif self._signature:
            delta = MessageDelta("signature_delta", signature="".join(self._signature))
            self._signature.clear()
            events.append(MessageEvent("content_block_delta", index=self.index, delta=delta))
        return [*events, MessageEvent("content_block_stop", index=self.index)]


def _joined(pieces: list[str]) -> str:
    """Pieces of bytes in base64 as one. Raises `BackendError`."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return b64encode(b"".join([b64decode(piece, validate=True) for piece in pieces])).decode()
    except ValueError:
        raise decoding.malformed("stream") from None


class MessageWriter:
    """Encodes the events of a message for a client of Messages."""

    __slots__ = ()

    def text(self, index: int, text: str) -> bytes:
        """Encode a piece of a text."""
        return _TEXT_DELTA % (index, _encode(text))

    def take(self, given: MessageEvent, usage: Usage) -> bytes:
        """Encode one event. `usage` applies if the server reports none."""
        match given.type:
            case "content_block_delta" if given.delta is not None:
                return event("content_block_delta", {"index": given.index, "delta": _delta_fields(given.delta)})
            case "content_block_start":
                return event("content_block_start", {"index": given.index, "content_block": given.content_block})
            case "content_block_stop":
                return event("content_block_stop", {"index": given.index})
            case "message_start" if given.message is not None:
                ends = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
                return event("message_start", {"message": {**head(given.message.id, given.message.model), **ends}})
            case "message_delta" if given.delta is not None:
                ended = {"stop_reason": given.delta.stop_reason, "stop_sequence": given.delta.stop_sequence}
                counted = usage_fields(given.usage) or message_usage(usage)
                return event("message_delta", {"delta": ended, "usage": counted})
        return event(given.type, {})


_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _delta_fields(delta: MessageDelta) -> Object:
    name = _TEXTS[delta.type]
    return {"type": delta.type, name: getattr(delta, name)}
