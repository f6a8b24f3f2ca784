"""Reads a chat's answer, whole or streamed, for doors with another protocol.

Servers differ in what they write. What cannot be read is left out: it must not cost the client a complete text.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from adapters.wire import decoding, failure_text, reported_usage
from adapters.wire.openai import kept_signatures
from adapters.wire.reported_usage import UsageReport

# Assembles the tool calls of a chat from their pieces, as different servers cut and number them.

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


_GROWING = ("text", "summary", "data")
"""The texts of a thought's details, which a stream cuts."""
FAILED = frozenset({"error", "insufficient_system_resource"})
"""The ends of an answer that a server could not complete (Mistral, OpenRouter, DeepSeek)."""
Kind = Literal["thought", "text", "refusal"]
Object = dict[str, Any]


class Text(NamedTuple):
    """A piece of a text. `logprobs` are those of its tokens."""

    kind: Kind
    text: str
    logprobs: Sequence[Object] = ()


class Signed(NamedTuple):
    """A thought's signature, or a thought that cannot be read: a block of Anthropic's messages."""

    block: Object


class CallPiece(NamedTuple):
    """A piece of a tool call, which has a name."""

    call: AnsweredCall
    arguments: str


Part = Text | Signed | CallPiece
_any = msgspec.json.Decoder().decode


class ChatReader:
    """Reads one answer. Its attributes are what the answer has reported so far."""

    __slots__ = (
        "_calls", "_details", "_halves", "_is_odd", "_thinks", "finish", "has_calls", "has_choice", "matched", "model",
        "reported",
    )  # fmt: skip

    def __init__(self) -> None:
        self._calls = CallAssembly()
        self._details: list[Object] = []
        """Thoughts in OpenRouter's form, until a call keeps them."""
        self._halves: dict[Any, str] = {}
        self._is_odd = False
        self._thinks = False
        self.model = ""
        self.finish: str | None = None
        self.matched: tuple[Any, ...] = ()
        """The stop text that ended the answer, in vLLM's field and in SGLang's."""
        self.reported: UsageReport | None = None
        self.has_calls = self.has_choice = False

    def read_chunk(self, data: bytes) -> list[Part]:
        """Read a chunk of a stream. Raises `BackendError`."""
        choice = self._choice(self._decoded(data, "stream"), data)
        delta = choice.get("delta", choice.get("message"))
        return self._parts(delta, choice, is_whole=False) if isinstance(delta, dict) else []

    def read_whole(self, body: bytes) -> list[Part]:
        """Read a whole answer. Raises `BackendError` if it has no message."""
        choice = self._choice(self._decoded(body, "response"), body)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise decoding.bad_response("The upstream's response has no message.")
        return [*self._parts(message, choice, is_whole=True), *self.end()]

    def end(self) -> list[Part]:
        """What is left. Raises `BackendError` if a call has no name."""
        calls = list[Part](map(self._piece, self._calls.end()))
        left, self._halves = self._halves, {}
        return calls + [Text(place, "\ufffd") for place in left if isinstance(place, str)]  # type: ignore[arg-type]

    # ── one object ────────────────────────────────────────────────────────────────────────────────────

    def _decoded(self, body: bytes, subject: str) -> Object:
        try:
            decoded = _any(body)
        except decoding.MALFORMED_JSON:
            decoded, self._is_odd = decoding.decode(decoding.loose, body, subject), True
        if not isinstance(decoded, dict):
            raise decoding.malformed(subject)
        return decoded

    def _choice(self, body: Object, data: bytes) -> Object:
        """The first choice; empty if there is none."""
        self.model = self.model or _text(body.get("model"))
        has_usage = b'"usage"' in data and not data.endswith(b'"usage":null}')
        if has_usage and (reported := reported_usage.of_chat(body)) is not None:
            self.reported = reported.over(self.reported)
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self.has_choice = True
                if finish := _text(choice.get("finish_reason")):
                    if finish in FAILED:
                        raise failure_text.server_failure(None)
                    self.finish = finish
                    self.matched = (choice.get("stop_reason"), choice.get("matched_stop"))
                return choice
        return {}

    def _parts(self, message: Object, choice: Object, *, is_whole: bool) -> list[Part]:
        content, likely = message.get("content"), choice.get("logprobs")
        if content and len(message) == 1 and likely is None and isinstance(content, str) and not self._is_odd:
            return [Text("text", content)]  # most chunks
        parts = list[Part](self._thoughts(message, is_whole=is_whole))
        if details := message.get("reasoning_details"):
            _join_details(self._details, _objects(details))
        logprobs = _objects(likely.get("content")) if isinstance(likely, dict) else ()
        if isinstance(content, str) and not self._is_odd:
            if content:
                parts.append(Text("text", content, logprobs))
        elif content:
            for part in _content(content):
                parts += self._joined(part._replace(logprobs=logprobs) if part.kind == "text" else part)
                logprobs = ()
        if refusal := message.get("refusal"):
            parts += self._joined(Text("refusal", _text(refusal)))
        pieces = _objects(message.get("tool_calls"))
        if isinstance(legacy := message.get("function_call"), dict):
            pieces.append({"index": "function_call", "function": legacy})
        for piece in pieces:
            parts += map(self._piece, self._calls.take(piece, is_whole=is_whole))
        return parts

    def _piece(self, call: AnsweredCall) -> CallPiece:
        if self._details and not (self.has_calls or call.extra):
            call.extra = kept_signatures.with_details(self._details)
        self.has_calls = True
        text = call.take()
        return CallPiece(call, self._whole_characters(call, text) if self._is_odd else text)

    def _thoughts(self, message: Object, *, is_whole: bool) -> Iterator[Part]:
        """A stream's blocks of thoughts sign texts that came before; a whole answer's blocks have the texts too."""
        blocks = _objects(message.get("thinking_blocks"))
        text = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        if not (text or blocks):
            return
        if is_whole and any(block.get("thinking") for block in blocks):
            text = ""
        has_text = bool(text) or self._thinks
        yield from self._joined(Text("thought", text))
        for block in blocks:
            if not has_text or (is_whole and not text):
                yield from self._joined(Text("thought", _text(block.get("thinking"))))
            if block.get("type") == "redacted_thinking" or _text(block.get("signature")):
                yield Signed(block)
        self._thinks = has_text

    # ── texts in UTF-16 ───────────────────────────────────────────────────────────────────────────────

    def _joined(self, part: Text) -> Iterator[Text]:
        text = self._whole_characters(part.kind, part.text) if self._is_odd else part.text
        if text:
            yield part._replace(text=text)

    def _whole_characters(self, place: Any, text: str) -> str:
        """Join the halves of surrogate pairs. A half at the end waits for the next piece of the same place."""
        text = self._halves.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._halves[place] = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _join_details(joined: list[Object], pieces: list[Object]) -> None:
    """Add the pieces of a chunk: the texts of one thought follow each other."""
    for piece in pieces:
        last = joined[-1] if joined else {}
        if (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index")) or not last:
            joined.append(dict(piece))
            continue
        for name, value in piece.items():
            is_text = name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str)
            if value is not None:
                last[name] = last[name] + value if is_text else value


def answer_text(content: Any) -> str:
    """The text of a message's content, whatever its form."""
    return "".join(part.text for part in _content(content) if part.kind == "text")


def _content(content: Any) -> Iterator[Text]:
    """A text, or parts of several types."""
    if isinstance(content, str):
        yield Text("text", content)
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield Text("text", part)
        elif isinstance(part, dict):
            match part.get("type"):
                case "text" | "output_text" | "summary_text":
                    yield Text("text", _text(part.get("text")))
                case "refusal":
                    yield Text("refusal", _text(part.get("refusal")))
                case "thinking" | "reasoning" as name:
                    # A list is Mistral's, a summary Databricks'.
                    thoughts = part.get(name) or part.get("text") or part.get("summary")
                    yield Text("thought", "".join(inner.text for inner in _content(thoughts)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[Object]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
