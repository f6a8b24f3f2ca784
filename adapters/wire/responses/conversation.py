"""Collects the messages of a chat from the items of a Response's input.

Items come in the order of events. A chat has one message for each step of the assistant, and directly after it the
results of its calls, whatever came between. Images of results follow in a user's message.
"""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import NOT_STORED, IgnoredFields
from adapters.wire import decoding
from adapters.wire.openai import bounds, kept_signatures
from adapters.wire.openai.history import complete_thoughts

# Translates the parts of an item's content into those of a chat message.

Part = dict[str, Any]

ABSENT = Raw(b"")
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


class _Part(msgspec.Struct):
    type: Any = None
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: Raw = ABSENT
    encrypted_content: Any = None


_parts = msgspec.json.Decoder(list[_Part])
_text = msgspec.json.Decoder(str)


class Wrong(Exception):
    """A fault in an item. `where` is a field of the item or part; `problem` completes a sentence after its name."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem


def is_text(raw: Raw) -> bool:
    """Whether a value is a JSON text."""
    return bytes(memoryview(raw)[:1]) == b'"'


def text_of(raw: Raw, where: str) -> str:
    """Decode a text. Raises `Wrong`."""
    try:
        return _text.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise Wrong(where, f"is not valid: {error}") from None


def content_of(raw: Raw, where: str) -> list[Part]:
    """The parts of a message that the client wrote. Raises `Wrong` for one that a chat cannot express."""
    if is_text(raw):
        return [_as_text(text_of(raw, where))]
    return [_part(part, f"{where}[{index}]") for index, part in enumerate(_decoded(raw, where))]


def history_of(raw: Raw, where: str, ignored: IgnoredFields) -> list[Part]:
    """The parts of an item that a model or a tool wrote. A part that a chat cannot express is ignored: the client
    repeats it with each request. Refusals keep their type. Raises `Wrong`."""
    if is_text(raw):
        return [_as_text(text_of(raw, where))]
    parts = list[Part]()
    for part in _decoded(raw, where):
        try:
            parts.append({"type": "refusal", "refusal": part.refusal} if part.refusal else _part(part, where))
        except Wrong:
            ignored.ignore(part.type if isinstance(part.type, str) else "content")
    return parts


def joined(parts: list[Part]) -> str | list[Part]:
    """A single text as a string: not every server accepts a list."""
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def as_parts(content: str | list[Part]) -> list[Part]:
    """A message's content as a list of parts."""
    return content if isinstance(content, list) else [_as_text(content)]


def divided(parts: list[Part]) -> tuple[str | list[Part], list[Part]]:
    """The texts, and the images and files, which only a user's message has."""
    return joined([part for part in parts if part["type"] == "text"]), [
        part for part in parts if part["type"] not in ("text", "refusal")
    ]


def _as_text(text: str) -> Part:
    return {"type": "text", "text": text}


def _part(part: _Part, where: str) -> Part:
    if part.type in _TEXTS:
        if part.text is None:
            raise Wrong(f"{where}.text", "is missing")
        return _as_text(part.text)
    if part.type in ("input_image", "computer_screenshot"):
        if part.image_url is None:
            raise Wrong(where, f"has no image_url: {NOT_STORED}")
        image = {"url": part.image_url} | ({"detail": part.detail} if part.detail else {})
        return {"type": "image_url", "image_url": image}
    if part.type == "input_file":
        if part.file_data is None:
            raise Wrong(where, f"has no file_data: {NOT_STORED}")
        return {"type": "file", "file": {"file_data": part.file_data, "filename": part.filename or "file"}}
    if part.type == "input_audio" and part.input_audio != ABSENT:
        return {"type": "input_audio", "input_audio": part.input_audio}
    if part.type == "encrypted_content" and isinstance(part.encrypted_content, str):
        return _as_text(part.encrypted_content)  # the gateway encrypts nothing, so this is an agent's own text
    raise Wrong(f"{where}.type", f"is {part.type!r}, which a chat cannot express")


def _decoded(raw: Raw, where: str) -> list[_Part]:
    if raw == ABSENT:
        raise Wrong(where, "is missing")
    if bytes(memoryview(raw)[:1]) == b"{":
        raw = Raw(b"[%b]" % bytes(raw))
    try:
        return _parts.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise Wrong(where, f"is not valid: {error}") from None


def refused(param: str, problem: str) -> CallerError:
    """The error of a fault at a place of the request."""
    return CallerError(f"`{param}` {problem}.", param=param)


Message = dict[str, Any]

_CONTENT = ("content", "refusal", "tool_calls")


class _Step:
    """A message, the results of its calls, and their images and files."""

    __slots__ = ("files", "is_old", "message", "results")

    def __init__(self, message: Message, *, is_old: bool) -> None:
        self.message = message
        self.is_old = is_old
        self.results: list[Message] = []
        self.files: list[Part] = []

    def finished(self, extras: dict[str, Raw]) -> list[Message]:
        """The messages as a server expects them; none for one that says nothing."""
        message = self.message
        if message["role"] != "assistant":
            return [message]
        if self.is_old and "tool_calls" not in message:
            message.pop("reasoning_content", None)
        if all(message.get(name) is None for name in _CONTENT):
            return []
        for call in message.get("tool_calls", ()):
            if (extra := extras.get(call["id"])) is not None:
                kept_signatures.restore(message, call, extra)
        message.setdefault("content", None)  # servers require an explicit null
        return [message, *self.results, *([{"role": "user", "content": self.files}] if self.files else ())]


class ChatMessages:
    """The messages so far."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._open: _Step | None = None
        """The assistant's message, while it can take further parts."""
        self._waiting: dict[str, _Step] = {}
        """The message of each call without a result, by the call's id."""
        self._extras: dict[str, Raw] = {}
        self.is_old = False
        """Whether a question follows. Servers use no thoughts from before it, except those that led to calls."""

    def add(self, role: str, content: str | list[Part]) -> None:
        """Append a message that is not the assistant's."""
        self._open = None
        if not isinstance(content, str) and any(part["type"] != "text" for part in content):
            role = "user"  # the only one with images and files
        self._steps.append(_Step({"role": role, "content": content}, is_old=self.is_old))

    def answer(self, content: str | list[Part] | None, refusal: str | None) -> None:
        """Append a text of the assistant."""
        message = self._assistant("content").message
        message["content"] = content
        if refusal is not None:
            message["refusal"] = refusal

    def think(self, text: str) -> None:
        """Append a thought."""
        self._assistant("reasoning_content").message["reasoning_content"] = text

    def sign(self, call_id: str, extra: Raw) -> None:
        """What a server demands back with one of its calls, or, without an id, with its text."""
        if not call_id:
            self._assistant("extra_content").message["extra_content"] = extra
            return
        self._extras[bounds.call_id(call_id)] = extra

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """Append a call of the assistant."""
        step, call_id = self._assistant(), bounds.call_id(call_id)
        function = {"name": name, "arguments": arguments}
        calls = step.message.setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})
        self._waiting[call_id] = step

    def result(self, call_id: str | None, content: str | list[Part], files: list[Part]) -> None:
        """Place the result of a call. One without its call is a text of the user."""
        call_id = bounds.call_id(call_id or "")
        step = self._waiting.pop(call_id, None)
        if step is None:
            self.add("user", [*as_parts(content), *files] if files else content)
            return
        self._open = None
        step.results.append({"role": "tool", "tool_call_id": call_id, "content": content})
        step.files += files

    def messages(self) -> list[Message]:
        """All messages in the order of a chat. Those of one role in a row become one, because templates of some models
        refuse others."""
        messages = list[Message]()
        for step in self._steps:
            for message in step.finished(self._extras):
                if messages and messages[-1]["role"] == message["role"] in ("system", "user"):
                    messages[-1]["content"] = _together(messages[-1]["content"], message["content"])
                else:
                    messages.append(message)
        complete_thoughts(messages)
        return messages

    def _assistant(self, without: str = "") -> _Step:
        """The assistant's open message if it lacks this field; otherwise a new one."""
        if self._open is None or without in self._open.message:
            self._open = _Step({"role": "assistant"}, is_old=self.is_old)
            self._steps.append(self._open)
        return self._open


def _together(content: str | list[Part], more: str | list[Part]) -> str | list[Part]:
    """The contents of two messages. Two texts stay a text: not every server accepts a list."""
    if isinstance(content, str) and isinstance(more, str):
        return f"{content}\n\n{more}"
    return [*as_parts(content), *as_parts(more)]
