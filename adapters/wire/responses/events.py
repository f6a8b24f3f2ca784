"""Translates a chat's stream into a Response's: chunks in, events out."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import BackendError, InferenceError
from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.openai import kept_signatures
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.chat_usage import ChatUsage
from adapters.wire.responses.answers import ChatMessage, LogProbs, Shell, ToolCall, ending, usage_of
from adapters.wire.responses.streamed_items import CallItem, Item, KeptItem, StreamedPart, TextItem

MAX_ANSWER = 16 * 1024 * 1024
"""Characters of a response, which its last event repeats."""

_encode = msgspec.json.Encoder().encode


class _Choice(msgspec.Struct):
    delta: ChatMessage | None = None
    finish_reason: str | None = None
    logprobs: LogProbs | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: ChatUsage | None = None


_chunk = msgspec.json.Decoder(_Chunk).decode
_json = msgspec.json.Decoder(Raw).decode


def refusal_event(body: bytes) -> bytes:
    """OpenAI's error object as the only event of a stream."""
    error = msgspec.json.decode(body)["error"]
    fields = {name: error.get(name) for name in ("code", "message", "param")}
    return b"event: error\ndata: %b\n\n" % _encode({"type": "error", "sequence_number": 0, **fields})


class ResponseEvents:
    """Encodes the events of one Response. `take` receives each piece of the chat's stream; `end` or `fail` ends it."""

    __slots__ = (
        "_calls", "_final", "_finish", "_items", "_number", "_out", "_shell", "_size", "_text", "_usage", "done",
    )  # fmt: skip

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._out: list[bytes] = []
        self._number = 0
        self._items: list[Item] = []
        self._text: TextItem | None = None
        """The open item, beside calls."""
        self._calls: dict[int, CallItem] = {}
        self._size = 0
        self._finish: str | None = None
        self._usage: ChatUsage | None = None
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
                self._take(data)
            elif event:
                self._out.append(event + b"\n\n")  # a keep-alive comment
        return self._flushed()

    def end(self, counted: Usage) -> bytes:
        """The last event of a complete response, or of one at its length limit."""
        if not self._number:
            self._begin()
        if not self._items:
            self._part("output_text")
        last = ending(self._finish)
        for item in self._items:
            self._close(item, last)
        usage = usage_of(self._usage, counted)
        encoded = self._shell.response(last, self._output(), finish=self._finish, usage=usage)
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
        usage = usage_of(self._usage, counted)
        self._emit(
            "response.failed", response=self._shell.response("failed", self._output(), error=fields, usage=usage)
        )
        return self._flushed()

    # ── chunks ─────────────────────────────────────────────────────────────────────────────

    def _take(self, data: bytes) -> None:
        chunk = decoding.decode(_chunk, data, "stream")
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices[:1]:
            if choice.delta is not None:
                self._add_text(choice.delta, choice.logprobs)
            self._finish = choice.finish_reason or self._finish

    def _add_text(self, delta: ChatMessage, logprobs: LogProbs | None) -> None:
        if delta.thought:
            self._write("reasoning_text", delta.thought)
        if delta.content:
            self._write("output_text", delta.content, (logprobs and logprobs.content) or [])
        if delta.refusal:
            self._write("refusal", delta.refusal)
        for call in delta.tool_calls or ():
            self._call(call)

    def _write(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        part = self._part(kind)
        part.pieces.append(text)
        self._grow(text)
        more: dict[str, Any] = {} if logprobs is None else {"logprobs": logprobs}
        if logprobs:
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

    def _call(self, piece: ToolCall) -> None:
        index = len(self._calls) if piece.index is None else piece.index
        call, function = self._calls.get(index), piece.function
        if call is None:
            if function is None or not function.name:
                raise decoding.bad_response("The upstream's stream has a function call without a name.")
            self._close_before_a_call()
            call = self._calls[index] = self._new_call(piece, function.name)
        if function is not None and function.arguments:
            if call.status != "in_progress":
                raise BackendError("The upstream's stream continues a closed tool call.")
            self._grow(function.arguments)
            self._write_call(call, call.take(function.arguments))

    def _new_call(self, piece: ToolCall, name: str) -> CallItem:
        ids = self._shell.ids
        call_id = piece.id or ids.item("call", len(self._items))
        if (kept := kept_signatures.encode(call_id, piece.extra_content)) is not None:
            item = KeptItem(ids, len(self._items), kept)
            self._open(item)
            self._close(item, "completed")
        call = CallItem(ids, len(self._items), call_id, self._shell.names.of_call(name))
        self._open(call)
        return call

    def _write_call(self, call: CallItem, text: str) -> None:
        if text:
            self._emit(f"response.{call.kind}.delta", delta=text, **call.place)

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ANSWER:
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
        for call in self._calls.values():
            if call.status == "in_progress" and _is_json(call.arguments):
                self._close(call, "completed")

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
        data = _encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def _flushed(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)


def _is_json(text: str) -> bool:
    try:
        _json(text)
    except decoding.MALFORMED_JSON:
        return False
    return True
