"""The content blocks of a streamed message, one open at a time."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.wire import decoding
from adapters.wire.anthropic.answers import call_id

MAX_CALLS = 1024
MAX_ARGUMENTS = 4 * 1024 * 1024
"""Characters of a response's tool calls that are buffered until each call is complete."""

_encode = msgspec.json.Encoder().encode
_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)


def event(name: str, fields: dict[str, Any]) -> bytes:
    """One event of Anthropic's streams: its name stands in it twice."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode({"type": name, **fields}))


class _Thought(msgspec.Struct):
    type: str = ""
    thinking: str = ""
    signature: str = ""


_thought = msgspec.json.Decoder(_Thought).decode


class _Call:
    """A tool's call, whose block may have to wait until the one before it has ended."""

    __slots__ = ("id", "name", "pending", "arguments")

    def __init__(self, id_: str, name: str) -> None:
        self.id = id_
        self.name = name
        self.arguments: list[str] = []
        self.pending = ""
        """Arguments that are not sent yet."""

    @property
    def is_whole(self) -> bool:
        """Whether its arguments may be complete."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.arguments), type=dict[str, Raw])
        except decoding.MALFORMED_JSON:
            return False
        return True


class OpenBlocks:
    """The open block: at most one, as clients expect. If a server interleaves the pieces of several calls, later calls
    wait."""

    __slots__ = ("_calls", "_index", "_kind", "_left", "_open", "_waiting")

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""
        self._left = MAX_ARGUMENTS
        self._calls: dict[int, _Call] = {}
        self._open: _Call | None = None
        self._waiting: list[_Call] = []

    def text(self, text: str) -> list[bytes]:
        """Append text."""
        out = self._become("text", {"type": "text", "text": ""})
        return [*out, self._delta(b"text_delta", b"text", text)]

    def thinking(self, text: str) -> list[bytes]:
        """A further part of a thought."""
        out = self._become("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return [*out, self._delta(b"thinking_delta", b"thinking", text)]

    def thought(self, raw: Raw) -> list[bytes]:
        """A thought's signature, or one that cannot be read: as a chat's `thinking_blocks` have them, where its text
        has come before."""
        try:
            thought = _thought(raw)
        except decoding.MALFORMED_JSON:
            return []
        if thought.type == "redacted_thinking":
            out = self.end()
            self._kind = thought.type
            return [*out, *self._begin(raw), *self._close()]
        if not thought.signature:
            return []
        out = self._become("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return [*out, self._delta(b"signature_delta", b"signature", thought.signature), *self._close()]

    def call(self, index: int | None, id_: str | None, name: str | None, arguments: str) -> list[bytes]:
        """Append to a tool call, or open a new one. Without an index, the id distinguishes calls."""
        if index is None:
            index = len(self._calls) - (not id_ and bool(self._calls))
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = _Call(id_ or call_id(index), name or "")
            self._waiting.append(call)
        self._add(call, arguments)
        out: list[bytes] = []
        if self._waiting and (self._open is None or (self._open is not call and self._open.is_whole)):
            out += self._next()
        return out + self._more()

    def _add(self, call: _Call, arguments: str) -> None:
        if arguments:
            call.arguments.append(arguments)
            call.pending += arguments
            self._left -= len(arguments)
        is_over = call is not self._open and call not in self._waiting
        if self._left < 0 or len(self._calls) > MAX_CALLS or (is_over and arguments):
            raise decoding.bad_response("The upstream's tool calls cannot be decoded.")

    def end(self) -> list[bytes]:
        """All that is left."""
        out = self._close()
        while self._waiting:
            out += [*self._next(), *self._more(), *self._close()]
        return out

    # ── one block ─────────────────────────────────────────────────────────────────────────────────────

    def _become(self, kind: str, block: dict[str, Any]) -> list[bytes]:
        if self._kind == kind:
            return []
        out = self.end()
        self._kind = kind
        return [*out, *self._begin(block)]

    def _begin(self, block: Any) -> list[bytes]:
        self._index += 1
        return [event("content_block_start", {"index": self._index, "content_block": block})]

    def _delta(self, type_: bytes, field: bytes, text: str) -> bytes:
        return _DELTA % (self._index, type_, field, _encode(text))

    def _close(self) -> list[bytes]:
        if not self._kind:
            return []
        self._kind, self._open = "", None
        return [event("content_block_stop", {"index": self._index})]

    def _next(self) -> list[bytes]:
        """Open the call that has waited longest, and close the open block."""
        out = self._close()
        self._open, self._kind = self._waiting.pop(0), "tool_use"
        block = {"type": "tool_use", "id": self._open.id, "name": self._open.name, "input": {}}
        return [*out, *self._begin(block)]

    def _more(self) -> list[bytes]:
        """The part of the open call that was not sent yet."""
        call = self._open
        if call is None or not call.pending:
            return []
        text, call.pending = call.pending, ""
        return [self._delta(b"input_json_delta", b"partial_json", text)]
