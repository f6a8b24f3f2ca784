"""The texts of streams behind guards."""

from typing import Any, Protocol

from adapters.answer import Answer
from adapters.errors import InferenceError
from adapters.requests import GenerateRequest, ModelRequest, ResponsesRequest
from adapters.stream import DerivedStream
from gateway.features.guards.texts import masked_arguments, masked_value
from gateway.features.guards.verdicts import SideGuard, TextsOf
from gateway.traffic.guarded.chats import GuardedStream
from gateway.traffic.guarded.guard import GuardedReader, GuardedText, HeldPart
from gateway.traffic.guarded.tensors import GuardedTensorStream
from policies.guards.masking import TextTooLong
from policies.pipelines.window import HeldToolCall


class TextsGuard:
    """Examines the texts of one stream."""

    def __init__(self, guard: SideGuard) -> None:
        self._guard = guard

    def text(self, name: str = "") -> GuardedText:
        text, panel = _Text(self._guard, self._guard.held()), self._guard.panel
        if panel is None:
            return text
        from gateway.features.guards.judged import JudgedText

        return JudgedText(text, panel, is_whole=name == "content")

    def arguments(self) -> GuardedText | None:
        held = self._guard.arguments()
        return None if held is None else _Text(self._guard, held)

    async def call(self, call: HeldToolCall) -> tuple[str, str] | None:
        name, arguments = call.name, "".join(call.arguments)
        masked = self._guard.masked(name), masked_arguments(arguments, self._guard.masked(arguments))
        if self._guard.panel is not None:  # after the masks: a service must not receive what they hide
            await self._guard.panel.examine(["\n".join(masked)])
        return None if masked == (name, arguments) else masked

    async def value(self, value: Any) -> None:
        """Examine a value of JSON that no text of the stream continues. It stays as it is."""
        masked_value(value, self._guard.masked)
        if self._guard.panel is not None:
            collected = TextsOf(self._guard)
            masked_value(value, collected.masked)
            await self._guard.panel.examine(collected.texts)

    def unreadable(self, message: str) -> InferenceError:
        error = self._guard.unreadable("the stream")
        error.message = message
        return error


class _Text:
    __slots__ = ("_guard", "_held")

    def __init__(self, guard: SideGuard, held: HeldPart | None) -> None:
        self._guard = guard
        self._held = held

    async def feed(self, text: str) -> str:
        try:
            return text if self._held is None else self._held.feed(text)
        except TextTooLong as error:
            raise self._guard.too_long(error) from None

    async def end(self) -> str:
        return "" if self._held is None else self._held.end()


def reader_of(request: ModelRequest, answer: Answer, guard: SideGuard) -> GuardedReader | None:
    """A stream with the texts that may leave; None for a stream that cannot be read."""
    form = answer.form
    if form.wire in ("oip-http", "oip-grpc"):
        return GuardedTensorStream(answer, TextsGuard(guard))
    if form.wire != "openai" or "event-stream" not in answer.content_type or isinstance(request, ResponsesRequest):
        return None
    include_usage = isinstance(request, GenerateRequest) and request.include_usage
    return GuardedStream(answer, TextsGuard(guard), include_usage=include_usage)


class PieceReader(Protocol):
    """Reads the pieces of a stream. Raises `InferenceError` for one that it cannot read."""

    async def take(self, piece: bytes | None) -> object:
        """Read a piece of whole events, or None at the end."""
        ...


class MonitoredStream(DerivedStream):
    """A stream whose pieces leave unchanged. A second reader of the same pieces finds what guards would have done."""

    __slots__ = ("_reader",)

    def __init__(self, inner: Answer, reader: PieceReader) -> None:
        super().__init__(inner)
        self._reader: PieceReader | None = reader

    async def _next(self, patience: float | None = None) -> bytes:
        try:
            piece = await self._inner.__anext__()
        except StopAsyncIteration:
            await self._read(None)
            raise
        await self._read(piece)
        return piece

    async def _read(self, piece: bytes | None) -> None:
        """Read a piece, or the end. What cannot be read is not counted."""
        if self._reader is not None:
            try:
                await self._reader.take(piece)
            except InferenceError:
                self._reader = None
