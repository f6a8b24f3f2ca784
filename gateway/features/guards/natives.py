"""Streams of Messages, of Gemini and of Responses as their servers write them, for guards that only count.

The bytes leave unchanged beside this. A text is complete when its block, its item or the stream ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from adapters.requests import ModelRequest, ResponsesRequest
from adapters.types import Form
from adapters.wire import sse
from adapters.wire.openai.chat import DONE
from gateway.features.guards import texts
from gateway.features.guards.streams import TextsGuard
from gateway.traffic.generated_text import Object, events_of
from gateway.traffic.guarded.guard import GuardedText
from policies.pipelines.window import HeldToolCalls, ToolCallOverflowError

MAX_TEXTS = 1024
"""Texts of one stream that are open at the same time."""
Place = tuple[Hashable, ...]
_CONTENT, _THOUGHTS = "content", "reasoning"
_encode = msgspec.json.Encoder().encode


class NativeReader(ABC):
    """Reads the events of one stream. Raises `InferenceError` for a stream that cannot be read."""

    def __init__(self, guard: TextsGuard) -> None:
        self._guard = guard
        self._texts: dict[Place, GuardedText] = {}
        self._calls: dict[Place, HeldToolCalls] = {}

    async def take(self, piece: bytes | None) -> None:
        """Read a piece of whole events, or None at the end of the stream."""
        if piece is None:
            await self._end(())
            return
        for event, body in events_of(piece):
            if body is not None and sse.data_of(event) != DONE:
                await self._read(body)

    @abstractmethod
    async def _read(self, event: Object) -> None:
        """Read one event."""

    async def _text(self, place: Place, name: str, text: Any) -> None:
        """The next part of the text of a place."""
        if not isinstance(text, str) or not text:
            return
        if (open_text := self._texts.get(place)) is None:
            self._check_room()
            open_text = self._texts[place] = self._guard.text(name)
        await open_text.feed(text)

    def _call(self, place: Place, name: Any = "", arguments: Any = "") -> None:
        """The next part of a call of a tool."""
        if (calls := self._calls.get(place)) is None:
            self._check_room()
            calls = self._calls[place] = HeldToolCalls()
        try:
            calls.feed(0, name if isinstance(name, str) else "", arguments if isinstance(arguments, str) else "")
        except ToolCallOverflowError as error:
            raise self._guard.unreadable(f"A guard cannot hold the answer: {error}.") from None

    def _check_room(self) -> None:
        if len(self._texts) + len(self._calls) >= MAX_TEXTS:
            raise self._guard.unreadable("The answer has more texts than a guard examines.")

    async def _whole(self, value: Any) -> None:
        """A value that the stream does not cut."""
        if value:
            await self._guard.value(texts.without_tokens(value))

    async def _end(self, place: Place) -> None:
        """The texts and the calls at a place, and at those within it, are complete."""
        size = len(place)
        for at in [at for at in self._texts if at[:size] == place]:
            await self._texts.pop(at).end()
        for at in [at for at in self._calls if at[:size] == place]:
            for call in self._calls.pop(at).complete().values():
                await self._guard.call(call)


class MessagesReader(NativeReader):
    """The events of Anthropic's Messages. The texts of all blocks are one, as they are in a chat."""

    async def _read(self, event: Object) -> None:
        place = (_number(event, "index"),)
        match event.get("type"):
            case "content_block_start":
                await self._begin(place, _object(event, "content_block"))
            case "content_block_delta":
                await self._more(place, _object(event, "delta"))
            case "content_block_stop":
                await self._end(place)
            case "message_stop":
                await self._end(())

    async def _begin(self, place: Place, block: Object) -> None:
        if "input" in block:  # of a tool of the client, of the server or of MCP
            given = block["input"]
            self._call(place, block.get("name"), _encode(given).decode() if given else "")
        elif block.get("type") in ("text", "thinking"):
            await self._more(place, {name: block[name] for name in ("text", "thinking", "citations") if name in block})
        else:
            await self._whole(block)

    async def _more(self, place: Place, delta: Object) -> None:
        await self._text((_CONTENT,), _CONTENT, delta.get("text"))
        await self._text((_THOUGHTS,), _THOUGHTS, delta.get("thinking"))
        if "partial_json" in delta:
            self._call(place, arguments=delta["partial_json"])
        await self._whole({name: delta[name] for name in ("citation", "citations") if delta.get(name)})


class ContentsReader(NativeReader):
    """The chunks of Gemini's answers."""

    async def _read(self, event: Object) -> None:
        candidates = event.get("candidates")
        for number, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict):
                await self._candidate((_number(candidate, "index", number),), candidate)

    async def _candidate(self, place: Place, candidate: Object) -> None:
        parts = _object(candidate, "content").get("parts")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                await self._part(place, part)
        await self._whole({name: value for name, value in candidate.items() if name != "content"})
        if candidate.get("finishReason"):
            await self._end(place)

    async def _part(self, place: Place, part: Object) -> None:
        name = _THOUGHTS if part.get("thought") else _CONTENT
        await self._text((*place, name), name, part.get("text"))
        if call := _object(part, "functionCall"):
            at = (*place, "call")
            self._call(at, call.get("name"), _encode(call.get("args") or {}).decode())
            await self._end(at)
        await self._whole({name: value for name, value in part.items() if name not in ("text", "functionCall")})


_DELTAS: Mapping[str, str] = {
    "response.output_text.delta": _CONTENT,
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": _THOUGHTS,
    "response.reasoning_summary_text.delta": "summary",
    "response.code_interpreter_call_code.delta": "code",
}
"""Events with a part of a text, and the name of the text."""
_ARGUMENTS = frozenset(
    (
        "response.function_call_arguments.delta", "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
    )
)  # fmt: skip
_STREAMED = frozenset(("type", "content", "summary", "code", "arguments", "input", "name"))
"""Fields of an item that its events have before it is complete."""


class ResponsesReader(NativeReader):
    """The events of OpenAI's Responses. An item without events of its own is read when it is complete."""

    async def _read(self, event: Object) -> None:
        kind, place = event.get("type"), (_number(event, "output_index"),)
        if (name := _DELTAS.get(str(kind))) is not None:
            part = _number(event, "content_index", _number(event, "summary_index"))
            await self._text((*place, name, part), name, event.get("delta"))
        elif str(kind) in _ARGUMENTS:
            self._call(place, arguments=event.get("delta"))
        elif kind == "response.output_text.annotation.added":
            await self._whole(event.get("annotation"))
        elif kind == "response.output_item.done":
            await self._item(place, _object(event, "item"))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            await self._end(())

    async def _item(self, place: Place, item: Object) -> None:
        if place in self._calls:
            self._call(place, name=item.get("name"))
        has_parts = place in self._calls or any(at[:1] == place for at in self._texts)
        await self._end(place)
        await self._whole({name: value for name, value in item.items() if not (has_parts and name in _STREAMED)})


_READERS: Mapping[str, Callable[[TextsGuard], NativeReader]] = {"anthropic": MessagesReader, "gemini": ContentsReader}


def native_reader_of(request: ModelRequest, form: Form, guard: TextsGuard) -> NativeReader | None:
    """The reader of a stream in its server's own format; None for one of another format."""
    if isinstance(request, ResponsesRequest):
        return ResponsesReader(guard) if form.wire == "openai" else None
    reader = _READERS.get(form.wire)
    return None if reader is None else reader(guard)


def _object(value: Object, name: str) -> Object:
    given = value.get(name)
    return given if isinstance(given, dict) else {}


def _number(value: Object, name: str, default: int = 0) -> int:
    given = value.get(name)
    return given if isinstance(given, int) else default
