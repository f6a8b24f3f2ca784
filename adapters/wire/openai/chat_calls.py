"""Assembles the tool calls of a chat from their pieces, as different servers cut and number them."""

import re
from typing import Any

import msgspec
from msgspec import Raw

from adapters.wire import decoding

MAX_CALLS = 1024
MAX_ARGUMENTS = 4 * 1024 * 1024
"""Characters of an answer's tool calls: some wait until the name of their call arrives."""

_encode = msgspec.json.Encoder().encode
_TOKENS = re.compile(r'[{}\[\]"]|\\')


class AnsweredCall:
    """A tool call. `id` is empty if the server gives none, or one that another call has."""

    __slots__ = (
        "_depth",
        "_escaped",
        "_in_text",
        "_is_object",
        "extra",
        "id",
        "is_ready",
        "is_whole",
        "name",
        "pending",
        "size",
    )

    def __init__(self) -> None:
        self.id = self.name = self.pending = ""
        self.size = 0
        """Characters of the arguments."""
        self.is_ready = False
        """Whether it has gone on to the client."""
        self.is_whole = False
        """Whether the object of arguments has ended."""
        self.extra = Raw(b"")
        """The server's `extra_content`, which it demands back."""
        self._is_object: bool | None = None
        self._depth = 0
        self._in_text = self._escaped = False

    def add(self, text: str) -> None:
        """Append to the arguments. Nothing can follow their object: some servers repeat it."""
        if self.is_whole or not text:
            return
        if self._is_object is None and (begun := text.lstrip()):
            self._is_object = begun[0] == "{"
        if self._is_object:
            text = self._scanned(text)
        self.size += len(text)
        self.pending += text

    def _scanned(self, text: str) -> str:
        """The part of a piece up to the end of the object."""
        at, self._escaped = int(self._escaped), False
        while (token := _TOKENS.search(text, at)) is not None:
            at = token.end()
            if token[0] == "\\":
                self._escaped, at = at == len(text), at + 1
            elif token[0] == '"':
                self._in_text = not self._in_text
            elif not self._in_text:
                self._depth += 1 if token[0] in "{[" else -1
                if self._depth <= 0:
                    self.is_whole = True
                    return text[:at]
        return text

    def take(self) -> str:
        """The arguments that arrived since the last call."""
        text, self.pending = self.pending, ""
        return text


class CallAssembly:
    """All calls of an answer."""

    __slots__ = ("_all", "_left", "_ready", "_slots")

    def __init__(self) -> None:
        self._all: list[AnsweredCall] = []
        self._ready = 0
        """How many of them have gone on."""
        self._slots: dict[Any, list[AnsweredCall]] = {}
        self._left = MAX_ARGUMENTS

    def take(self, piece: dict[str, Any], *, is_whole: bool = False) -> list[AnsweredCall]:
        """Add a piece, or a whole call. Returns the calls that can go on: a call waits for its name, and for those
        before it. Raises `BackendError` beyond the bounds."""
        given = piece.get("function")
        function: dict[str, Any] = given if isinstance(given, dict) else piece
        id_, name = _word(piece.get("id")), _word(function.get("name"))
        text = _arguments(function.get("arguments"))
        call = self._call(len(self._all) if is_whole else piece.get("index"), id_, name, text)
        if call is None:
            return []
        if id_ and not call.id and all(other.id != id_ for other in self._all):
            call.id = id_
        call.name = call.name or name
        if isinstance(extra := piece.get("extra_content"), dict):
            call.extra = Raw(_encode(extra))
        before = call.size
        call.add(text)
        self._left -= call.size - before
        if self._left < 0 or len(self._all) > MAX_CALLS:
            raise decoding.bad_response("The upstream's tool calls are too large, or too many.")
        ready = [call] if call.is_ready else []
        while self._ready < len(self._all) and self._all[self._ready].name:
            ready.append(following := self._all[self._ready])
            following.is_ready = True
            self._ready += 1
        return ready

    def end(self) -> list[AnsweredCall]:
        """The calls that still waited. Raises `BackendError` if a call with arguments never got a name."""
        left, self._ready = self._all[self._ready :], len(self._all)
        if any(call.size and not call.name for call in left):
            raise decoding.bad_response("The upstream's answer has a tool call without a name.")
        return [call for call in left if call.name]

    def _call(self, index: Any, id_: str, name: str, text: str) -> AnsweredCall | None:
        """The call of a piece; None for a piece of nothing."""
        slot = self._slots.setdefault(index if isinstance(index, int | str) else None, [])
        candidates = slot or (self._all if index is None and not name else slot)
        same = [call for call in candidates if id_ and call.id == id_]
        call = same[-1] if same else candidates[-1] if candidates else None
        if call is None or (not same and _begins(call, id_, name, text)):
            if not (id_ or name or text or isinstance(index, int)):
                return None
            call = AnsweredCall()
            self._all.append(call)
            slot.append(call)
        return call


def _begins(call: AnsweredCall, id_: str, name: str, text: str) -> bool:
    """Whether a piece with the place of a call begins another. Some servers number all calls 0; others give each piece
    of one call a new id."""
    new_id, new_name = bool(id_ and call.id), bool(name and call.name)
    if call.is_whole or (new_id and new_name):
        return new_id or new_name
    if new_id:
        return not (text or call.size)
    return new_name and name != call.name


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value != "null" else ""


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _encode(value).decode()
