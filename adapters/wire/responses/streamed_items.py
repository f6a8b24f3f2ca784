"""The items of a Response while it is streamed: texts with their parts, and calls."""

from typing import Any

from adapters.wire.responses import answers
from adapters.wire.responses.answers import Ids


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


class CallItem(Item):
    """A function call."""

    __slots__ = ("call_id", "name", "pieces")

    def __init__(self, ids: Ids, index: int, call_id: str, name: str) -> None:
        super().__init__(ids.item("fc", index), index)
        self.call_id = call_id or self.id
        self.name = name
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def fields(self) -> dict[str, Any]:
        return answers.function_call(self.id, self.call_id, self.name, self.arguments, self.status)
