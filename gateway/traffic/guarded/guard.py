"""What examines the texts of a stream, and the stream of what may leave."""

from abc import abstractmethod
from typing import Protocol

from adapters.answer import Answer
from adapters.errors import ContentFiltered, InferenceError
from adapters.stream import DerivedStream
from adapters.types import Form
from policies.pipelines.window import HeldToolCall


class ContentReplaced(ContentFiltered):
    """A guard replaces the answer by `text`. Where no text can be the answer, the content is blocked."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class HeldPart(Protocol):
    """One text of a stream, which is held while it must not leave. Raises `TextTooLong`, and what a guard raises."""

    def feed(self, text: str) -> str:
        """Add the next part. Returns what may leave."""
        ...

    def end(self) -> str:
        """The rest, which may leave."""
        ...


class GuardedText(Protocol):
    """One text of a stream behind a guard. Raises `ContentFiltered`, and other failures of the guard."""

    async def feed(self, text: str) -> str:
        """Add the next part. Returns what may leave."""
        ...

    async def end(self) -> str:
        """The rest, which may leave."""
        ...


class StreamGuard(Protocol):
    """What examines the texts of a stream."""

    def text(self, name: str = "") -> GuardedText:
        """A text that begins. `name` is that of its field, if it has one."""
        ...

    def arguments(self) -> GuardedText | None:
        """The arguments of a tool that begin, and leave in parts; None if `call` examines them as a whole."""
        return None

    async def call(self, call: HeldToolCall) -> tuple[str, str] | None:
        """Examine a whole tool call. Returns another name and other arguments, or None for the same.

        Raises `ContentFiltered`, and other failures of the guard.
        """
        ...

    def unreadable(self, message: str) -> InferenceError:
        """The error of a stream that cannot be examined."""
        ...


class GuardedReader(DerivedStream):
    """A stream of what may leave of another one. A block ends it with an error and cancels the upstream; a replacement
    ends it as an answer."""

    __slots__ = ("_is_replaced",)

    def __init__(self, inner: Answer, *, content_type: str = "", form: Form | None = None) -> None:
        super().__init__(inner, content_type=content_type, form=form)
        self._is_replaced = False

    async def _next(self, patience: float | None = None) -> bytes:
        try:
            return await self._leaving()
        except ContentReplaced as error:
            self._is_replaced = True
            await self._inner.aclose()  # before the rest, which may report the usage
            return self.replaced(error)

    async def _leaving(self) -> bytes:
        while not self._is_replaced:
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                if not (out := await self.take(None)):
                    raise
                return out
            if out := await self.take(piece):
                return out
        raise StopAsyncIteration

    def replaced(self, error: ContentReplaced) -> bytes:
        """The end of a stream whose rest a guard replaces. Raises the error itself where no text can be the rest."""
        raise error

    @abstractmethod
    async def take(self, piece: bytes | None) -> bytes:
        """Read a piece of the stream, or None at its end. Returns what may leave."""
