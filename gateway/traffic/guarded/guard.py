"""What examines the texts of a stream, and the stream of what may leave."""

from abc import abstractmethod
from typing import Protocol

from adapters.errors import InferenceError
from adapters.stream import DerivedStream
from policies.pipelines.window import HeldToolCall


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

    def text(self) -> GuardedText:
        """A text that begins."""
        ...

    async def call(self, call: HeldToolCall) -> tuple[str, str] | None:
        """Examine a whole tool call. Returns another name and other arguments, or None for the same.

        Raises `ContentFiltered`, and other failures of the guard.
        """
        ...

    def unreadable(self, message: str) -> InferenceError:
        """The error of a stream that cannot be examined."""
        ...


class GuardedReader(DerivedStream):
    """A stream of what may leave of another one. A block ends it with an error and cancels the upstream."""

    __slots__ = ()

    async def _next(self, patience: float | None = None) -> bytes:
        while True:
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                if not (out := await self.take(None)):
                    raise
                return out
            if out := await self.take(piece):
                return out

    @abstractmethod
    async def take(self, piece: bytes | None) -> bytes:
        """Read a piece of the stream, or None at its end. Returns what may leave."""
