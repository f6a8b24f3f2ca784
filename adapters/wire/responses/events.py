"""Translates a chat's stream into a Response's: chunks in, events out."""

from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.errors import InferenceError
from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.openai import kept_signatures
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.chat_reader import AnsweredCall, CallPiece, ChatReader, Part, Signed, Text
from adapters.wire.responses.answers import Shell, ending, usage_of
from adapters.wire.responses.streamed_items import CallItem, Item, SignatureItem, StreamedPart, TextItem

MAX_ANSWER = 16 * 1024 * 1024
"""Characters of a response, which its last event repeats."""

_encode = msgspec.json.Encoder().encode
_KINDS = {"thought": "reasoning_text", "text": "output_text", "refusal": "refusal"}


def refusal_event(body: bytes) -> bytes:
    """OpenAI's error object as the only event of a stream."""
    error = msgspec.json.decode(body)["error"]
    fields = {name: error.get(name) for name in ("code", "message", "param")}
    return b"event: error\ndata: %b\n\n" % _encode({"type": "error", "sequence_number": 0, **fields})


def whole(body: bytes, shell: Shell, counted: Usage) -> bytes:
    """Translate a chat's response. Raises `BackendError`."""
    events = ResponseEvents(shell, is_streamed=False)
    events.take_whole(body)
    events.end(counted)
    assert events.final is not None
    return events.final


class ResponseEvents:
    """Encodes the events of one Response. `take` receives each piece of the chat's stream; `end` or `fail` ends it."""

    __slots__ = (
        "_calls", "_final", "_is_streamed", "_items", "_number", "_out", "_reader", "_shell", "_size", "_text", "done",
    )  # fmt: skip

    def __init__(self, shell: Shell, *, is_streamed: bool = True) -> None:
        """Without `is_streamed` there are no events, only the complete Response."""
        self._shell = shell
        self._is_streamed = is_streamed
        self._reader = ChatReader()
        self._out: list[bytes] = []
        self._number = 0
        self._items: list[Item] = []
        self._text: TextItem | None = None
        """The open item, beside calls."""
        self._calls: dict[AnsweredCall, CallItem] = {}
        self._size = 0
        self._final: dict[str, Any] | None = None
        self.done = False
        """The chat's stream is complete."""

    def take(self, piece: bytes) -> bytes:
        """Translate whole events. Raises `BackendError` for malformed events."""
        if not self._number:
            self._begin()
        for event in piece.split(b"\n\n"):
            data = sse.data_of(event)
            if data == DONE:
                self.done = True
            elif data:
                self._add(self._reader.read_chunk(data))
            elif event:
                self._out.append(event + b"\n\n")  # a keep-alive comment
        return self._flushed()

    def take_whole(self, body: bytes) -> None:
        """Translate a whole response. Raises `BackendError`."""
        self._add(self._reader.read_whole(body))

    def end(self, counted: Usage) -> bytes:
        """The last event of a complete response, or of one at its length limit."""
        if not self._number:
            self._begin()
        try:
            self._add(self._reader.end())
        except InferenceError as error:
            return self.fail(error, counted)
        if not self._items:
            self._part("output_text")
        finish = self._reader.finish
        last = ending(finish)
        for item in self._items:
            self._close(item, last)
        usage = usage_of(self._reported() or counted)
        encoded = self._shell.response(last, self._output(), finish=finish, usage=usage)
        self._final = encoded
        self._emit(f"response.{last}", response=encoded)
        return self._flushed()

    @property
    def final(self) -> bytes | None:
        """The complete Response, after the end."""
        return None if self._final is None else _encode(self._final)

    def fail(self, error: InferenceError, counted: Usage) -> bytes:
        """The last event of a broken stream: its items are incomplete."""
        self._out.clear()
        if not self._number:
            self._begin()
        for item in self._items:
            item.status = "completed" if item.status == "completed" else "incomplete"
        fields = {"code": "server_error", "message": error.message, "type": error.code, "param": None}
        usage = usage_of(self._reported() or counted)
        self._emit(
            "response.failed", response=self._shell.response("failed", self._output(), error=fields, usage=usage)
        )
        return self._flushed()

    def _reported(self) -> Usage | None:
        return self._reader.reported and self._reader.reported.usage

    # ── chunks ─────────────────────────────────────────────────────────────────────────────

    def _add(self, parts: list[Part]) -> None:
        for part in parts:
            if isinstance(part, CallPiece):
                self._call(part)
            elif isinstance(part, Signed):
                self._sign(part.block.get("data"))
            elif isinstance(part, Text):
                self._write(_KINDS[part.kind], part.text, part.logprobs)

    def _write(self, kind: str, text: str, logprobs: Sequence[dict[str, Any]]) -> None:
        part = self._part(kind)
        part.pieces.append(text)
        self._grow(text)
        more: dict[str, Any] = {"logprobs": logprobs} if kind == "output_text" else {}
        part.logprobs += logprobs
        self._emit(f"response.{kind}.delta", delta=text, **part.place, **more)

    def _part(self, kind: str) -> StreamedPart:
        """The open part of this kind, or a new one."""
        item, is_reasoning = self._text, kind == "reasoning_text"
        if item is None or item.is_reasoning != is_reasoning:
            if item is not None:
                self._close(item, "completed")
            item = TextItem(self._shell.ids, len(self._items), is_reasoning=is_reasoning)
            self._text = item
            self._open(item)
        if not item.parts or item.parts[-1].kind != kind:
            if item.parts:
                self._close_part(item.parts[-1])
            part = item.add(kind)
            self._emit("response.content_part.added", part=part.fields(), **part.place)
        return item.parts[-1]

    def _call(self, piece: CallPiece) -> None:
        item = self._calls.get(piece.call)
        if item is None:
            self._close_before_a_call()
            item = self._calls[piece.call] = self._new_call(piece.call)
        if piece.arguments:
            self._grow(piece.arguments)
            self._write_call(item, item.take(piece.arguments))

    def _new_call(self, call: AnsweredCall) -> CallItem:
        ids = self._shell.ids
        call_id = call.id or ids.item("call", len(self._items))
        self._sign(kept_signatures.encode(call_id, call.extra))
        item = CallItem(ids, len(self._items), call_id, self._shell.names.of_call(call.name))
        self._open(item)
        return item

    def _sign(self, text: str | None) -> None:
        """Add what the client returns with a call or a text. Signatures of other servers have no place here."""
        if not isinstance(text, str) or not kept_signatures.is_own(text):
            return
        self._close_before_a_call()
        reasoning = SignatureItem(self._shell.ids, len(self._items), text)
        self._open(reasoning)
        self._close(reasoning, "completed")

    def _write_call(self, call: CallItem, text: str) -> None:
        if text:
            self._emit(f"response.{call.kind}.delta", delta=text, **call.place)

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ANSWER and self._is_streamed:
            raise decoding.bad_response("The upstream's response is too large.")

    # ── items ─────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        begun = self._shell.response("in_progress", [])
        self._emit("response.created", response=begun)
        self._emit("response.in_progress", response=begun)

    def _open(self, item: Item) -> None:
        self._items.append(item)
        self._emit("response.output_item.added", output_index=item.index, item=item.fields())

    def _close_before_a_call(self) -> None:
        """Close the items that cannot continue: text, and calls with complete arguments."""
        if self._text is not None:
            self._close(self._text, "completed")
            self._text = None
        for call, item in self._calls.items():
            if call.is_whole:
                self._close(item, "completed")

    def _close(self, item: Item, status: str) -> None:
        if item.status != "in_progress":
            return
        item.status = status
        if isinstance(item, TextItem):
            for part in item.parts[-1:]:
                self._close_part(part)
        elif isinstance(item, CallItem):
            if item.text is not None:
                self._write_call(item, item.text.end())
            self._emit(f"response.{item.kind}.done", **item.done_fields(), **item.place)
        self._emit("response.output_item.done", output_index=item.index, item=item.fields())

    def _close_part(self, part: StreamedPart) -> None:
        self._emit(f"response.{part.kind}.done", **part.place, **part.done_fields())
        self._emit("response.content_part.done", part=part.fields(), **part.place)

    def _output(self) -> list[dict[str, Any]]:
        return [item.fields() for item in self._items]

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def _emit(self, kind: str, **fields: Any) -> None:
        if not self._is_streamed:
            return
        data = _encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def _flushed(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)
