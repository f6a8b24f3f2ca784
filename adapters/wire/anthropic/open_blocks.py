"""The content blocks of a message that a chat's answer becomes: streamed, one open at a time, or whole."""

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from adapters.wire import decoding
from adapters.wire.anthropic import call_ids
from adapters.wire.anthropic.chat_turns import arguments
from adapters.wire.openai import kept_signatures
from adapters.wire.openai.chat_reader import AnsweredCall, CallPiece, Part, Signed

MAX_WAITING = 4 * 1024 * 1024
"""Characters of blocks that wait until the one before them has ended."""

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)
_TEXT, _THOUGHT, _SIGNATURE, _INPUT = (
    (b"text_delta", b"text"),
    (b"thinking_delta", b"thinking"),
    (b"signature_delta", b"signature"),
    (b"input_json_delta", b"partial_json"),
)


def event(name: str, fields: Object) -> bytes:
    """One event of Anthropic's streams: its name stands in it twice."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode({"type": name, **fields}))


def new_message() -> Object:
    """An empty message. Its id is the gateway's own: some servers give all answers one id, and clients merge them."""
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": "",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


class _Block:
    """A block, and the pieces of it that are not sent yet."""

    __slots__ = ("call", "is_signed", "pieces", "start")

    def __init__(self, start: Object, call: AnsweredCall | None = None) -> None:
        self.start = start
        self.call = call
        self.is_signed = False
        self.pieces: list[tuple[tuple[bytes, bytes], str]] = []

    def end(self) -> None:
        """Sign thoughts that have no signature of a server."""
        if self.start["type"] == "thinking" and not self.is_signed:
            self.pieces.append((_SIGNATURE, kept_signatures.UNSIGNED))
            self.is_signed = True

    @property
    def whole(self) -> Object:
        """The block with all its pieces."""
        self.end()
        texts = dict[str, str]()
        for (_, name), text in self.pieces:
            texts[name.decode()] = texts.get(name.decode(), "") + text
        if self.call is not None:
            return {**self.start, "input": arguments(texts.get("partial_json", ""))}
        return {**self.start, **texts}


class OpenBlocks:
    """The blocks of one message. If a server interleaves the pieces of several calls or texts, later blocks wait."""

    __slots__ = ("_blank", "_blocks", "_calls", "_index", "_is_open", "_name_of", "_token", "_waiting")

    def __init__(self, token: str, name_of: Callable[[str], str] = str) -> None:
        """`token` makes the ids of calls unique. `name_of` returns the client's name of a tool."""
        self._token = token
        self._name_of = name_of
        self._blocks: deque[_Block] = deque()
        self._calls: dict[AnsweredCall, _Block] = {}
        self._blank = ""
        self._index = 0
        self._is_open = False
        """Whether the first block has begun."""
        self._waiting = 0

    def add(self, part: Part) -> None:
        """Add a part of the answer."""
        if isinstance(part, CallPiece):
            self._append(self._block_of(part.call), _INPUT, part.arguments)
        elif isinstance(part, Signed):
            self._sign(part.block)
        elif part.kind == "thought":
            self._append(self._last("thinking", {"thinking": "", "signature": ""}), _THOUGHT, part.text)
        else:
            self._write(part.text)

    def flush(self, *, is_last: bool = False) -> bytes:
        """The events of everything that need not wait. With `is_last`, all that is left. Raises `BackendError` if too
        much waits."""
        out, blocks = list[bytes](), self._blocks
        while blocks:
            block, index = blocks[0], self._index
            if not self._is_open:
                self._is_open = True
                out.append(event("content_block_start", {"index": index, "content_block": block.start}))
            ends = is_last or (len(blocks) > 1 and (block.call is None or block.call.is_whole))
            if ends:
                block.end()
            out += [_DELTA % (index, type_, name, _encode(text)) for (type_, name), text in block.pieces]
            block.pieces.clear()
            if not ends:
                break
            blocks.popleft()
            self._is_open, self._index = False, index + 1
            out.append(event("content_block_stop", {"index": index}))
        if len(blocks) < 2:
            self._waiting = 0
        elif self._waiting > MAX_WAITING:
            raise decoding.bad_response("The upstream interleaves tool calls that are too large.")
        return b"".join(out)

    def whole(self) -> list[Object]:
        """The blocks of a message that is not streamed."""
        return [block.whole for block in self._blocks]

    def _write(self, text: str) -> None:
        """Append text. Blank text begins no block: Anthropic's API refuses such blocks when they come back."""
        if not (self._blocks and self._blocks[-1].start["type"] == "text"):
            text, self._blank = self._blank + text, ""
            if not text.strip():
                self._blank = text
                return
        self._append(self._last("text", {"text": ""}), _TEXT, text)

    def _sign(self, given: Object) -> None:
        if given.get("type") == "redacted_thinking":
            self._begin(given)
        else:
            block = self._last("thinking", {"thinking": "", "signature": ""})
            self._append(block, _SIGNATURE, given["signature"])
            block.is_signed = True

    def _block_of(self, call: AnsweredCall) -> _Block:
        if (block := self._calls.get(call)) is None:
            id_ = call_ids.to_message(call.id, self._token) if call.id else f"toolu_{self._token}{len(self._calls)}"
            if (carrier := kept_signatures.block(id_, call.extra)) is not None:
                self._begin(carrier)
            block = self._begin({"type": "tool_use", "id": id_, "name": self._name_of(call.name), "input": {}}, call)
            self._calls[call] = block
        return block

    def _last(self, type_: str, empty: Object) -> _Block:
        """The last block if it can continue, or a new one."""
        last = self._blocks[-1] if self._blocks else None
        if last is not None and last.start["type"] == type_ and not last.is_signed:
            return last
        return self._begin({"type": type_, **empty})

    def _begin(self, start: Object, call: AnsweredCall | None = None) -> _Block:
        self._blank = ""
        self._blocks.append(block := _Block(start, call))
        return block

    def _append(self, block: _Block, kind: tuple[bytes, bytes], text: str) -> None:
        if text:
            block.pieces.append((kind, text))
            self._waiting += len(text)


# A whole message as a stream, for servers that do not stream although a client has asked for it.

_decode = msgspec.json.Decoder(Object).decode
_DELTAS = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}


def events_of_message(body: bytes) -> bytes:
    """Return the events of a message. Raises `BackendError` for a malformed one."""
    message = decoding.decode(_decode, body)
    content = message.get("content")
    blocks = [block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict)]
    ends = ("stop_reason", "stop_sequence")
    opening = {**message, "content": [], **dict.fromkeys(ends)}
    last = {"delta": {name: message.get(name) for name in ends}, "usage": message.get("usage") or {}}
    inner = [piece for index, block in enumerate(blocks) for piece in _block(index, block)]
    start = event("message_start", {"message": opening})
    return b"".join([start, *inner, event("message_delta", last), event("message_stop", {})])


def _block(index: int, block: Object) -> Iterator[bytes]:
    """The events of one block. A block of another type than these is in its first event."""
    opening, deltas = dict(block), list[Object]()
    field, delta = _DELTAS.get(str(block.get("type")), ("", ""))
    if field and isinstance(text := block.get(field), str):
        opening[field] = ""
        deltas.append({"type": delta, field: text})
        if field == "thinking" and block.get("signature"):
            opening["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif "input" in block:
        opening["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": _encode(block["input"]).decode()})
    yield event("content_block_start", {"index": index, "content_block": opening})
    for each in deltas:
        yield event("content_block_delta", {"index": index, "delta": each})
    yield event("content_block_stop", {"index": index})
