"""The items of a Response while it is streamed: texts with their parts, and calls."""

from typing import Any

from adapters.wire.responses import answers
from adapters.wire.responses.answers import Ids
from adapters.wire.responses.custom_input import CustomInput
from adapters.wire.responses.tools import CallName


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
