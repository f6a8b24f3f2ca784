"""The items of a Response while it is streamed: texts with their parts, and calls."""

import re
from typing import Any

import msgspec

from adapters.wire import decoding
from adapters.wire.responses import answers
from adapters.wire.responses.answers import Ids
from adapters.wire.responses.tools import INPUT, CallName


class Item:
    """An item of the output, with its reported `status`."""

    __slots__ = ("id", "index", "status")

    def __init__(self, id_: str, index: int) -> None:
        self.id = id_
        self.index = index
        self.status = "in_progress"

    @property
    def place(self) -> dict[str, Any]:
        """The fields of each event about the item."""
        return {"item_id": self.id, "output_index": self.index}

    def fields(self) -> dict[str, Any]:
        """The item's JSON so far."""
        raise NotImplementedError


class StreamedPart:
    """A part of a text; `kind` is `output_text`, `refusal` or `reasoning_text`."""

    __slots__ = ("kind", "logprobs", "pieces", "place")

    def __init__(self, kind: str, item: Item, index: int) -> None:
        self.kind = kind
        self.place = {**item.place, "content_index": index}
        self.pieces: list[str] = []
        self.logprobs: list[dict[str, Any]] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def done_fields(self) -> dict[str, Any]:
        """The complete part's fields in its `done` event."""
        if self.kind == "output_text":
            return {"text": self.text, "logprobs": self.logprobs}
        return {"refusal" if self.kind == "refusal" else "text": self.text}

    def fields(self) -> dict[str, Any]:
        if self.kind == "output_text":
            return answers.output_text(self.text, self.logprobs)
        return answers.refusal(self.text) if self.kind == "refusal" else answers.reasoning_text(self.text)


class TextItem(Item):
    """A message, or the reasoning before it."""

    __slots__ = ("is_reasoning", "parts")

    def __init__(self, ids: Ids, index: int, *, is_reasoning: bool) -> None:
        super().__init__(ids.item("rs" if is_reasoning else "msg", index), index)
        self.is_reasoning = is_reasoning
        self.parts: list[StreamedPart] = []

    def add(self, kind: str) -> StreamedPart:
        """Begin a part."""
        part = StreamedPart(kind, self, len(self.parts))
        self.parts.append(part)
        return part

    def fields(self) -> dict[str, Any]:
        make = answers.reasoning if self.is_reasoning else answers.output_message
        return make(self.id, [part.fields() for part in self.parts], self.status)


class SignatureItem(Item):
    """What the client returns with the call after it, as reasoning that only the gateway reads."""

    __slots__ = ("text",)

    def __init__(self, ids: Ids, index: int, text: str) -> None:
        super().__init__(ids.item("rs", index), index)
        self.text = text

    def fields(self) -> dict[str, Any]:
        return answers.reasoning(self.id, [], self.status, self.text)


class CallItem(Item):
    """A call of a function or of a custom tool."""

    __slots__ = ("call_id", "pieces", "text", "tool")

    def __init__(self, ids: Ids, index: int, call_id: str, tool: CallName) -> None:
        super().__init__(ids.item(tool.prefix, index), index)
        self.call_id = call_id
        self.tool = tool
        self.pieces: list[str] = []
        """The arguments, as a chat has them."""
        self.text = CustomInput() if tool.is_custom else None
        """The input of a custom tool."""

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def kind(self) -> str:
        """The name of its events."""
        return "function_call_arguments" if self.text is None else "custom_tool_call_input"

    def take(self, arguments: str) -> str:
        """Append a piece of the arguments. Returns the text of its event."""
        self.pieces.append(arguments)
        return arguments if self.text is None else self.text.take(arguments)

    def done_fields(self) -> dict[str, Any]:
        """The complete arguments or input in its `done` event."""
        if self.text is None:
            return {"name": self.tool.name, "arguments": self.arguments}
        return {"input": "".join(self.text.pieces)}

    def fields(self) -> dict[str, Any]:
        if self.text is None:
            return answers.function_call(self.id, self.call_id, self.tool, self.arguments, self.status)
        return answers.custom_call(self.id, self.call_id, self.tool, "".join(self.text.pieces), self.status)


# Reads the text of a custom tool's call, while the chat streams it as the one argument of a function.

_BEGIN = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_WHOLE = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])))*"
)
"""Whole characters of a JSON text. The first half of an escaped pair waits for what follows."""
_LONGEST_BEGIN = 64
"""Characters after which arguments have another form."""

_text = msgspec.json.Decoder(str).decode
_arguments = msgspec.json.Decoder(dict[str, str]).decode


class CustomInput:
    """The input of one call. `take` receives the pieces of the arguments in order."""

    __slots__ = ("_is_text", "_pending", "_raw", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """The text so far."""
        self._raw: list[str] = []
        self._pending = ""
        self._is_text: bool | None = None
        """Whether the text goes on; None before it has begun."""

    def take(self, arguments: str) -> str:
        """The text that a piece adds."""
        self._raw.append(arguments)
        if self._is_text is None:
            self._begin(arguments)
        elif self._is_text:
            self._pending += arguments
        return self._more() if self._is_text else ""

    def end(self) -> str:
        """The rest: all of it if the arguments have another form than the tool's."""
        return "" if self.pieces or self._is_text else self._add(_input_of("".join(self._raw)))

    def _begin(self, arguments: str) -> None:
        if len(self._pending) < _LONGEST_BEGIN:
            self._pending += arguments
            if (begin := _BEGIN.match(self._pending)) is not None:
                self._is_text, self._pending = True, self._pending[begin.end() :]

    def _more(self) -> str:
        match = _WHOLE.match(self._pending)
        text = "" if match is None else match[0]
        self._pending = self._pending[len(text) :]
        self._is_text = not self._pending.startswith('"')
        try:
            return self._add(_text(f'"{text}"'.encode()))
        except (msgspec.DecodeError, UnicodeError):  # not JSON, such as a line break as it is
            return self._add(text)

    def _add(self, text: str) -> str:
        if text:
            self.pieces.append(text)
        return text


def _input_of(arguments: str) -> str:
    """The input in arguments of another form: their only text, or the arguments themselves."""
    try:
        given = _arguments(arguments)
    except decoding.MALFORMED_JSON:
        return arguments
    return given.get(INPUT) or (next(iter(given.values())) if len(given) == 1 else arguments)
