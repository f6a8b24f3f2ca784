"""What examines the texts of a stream."""

from typing import Protocol

from adapters.errors import InferenceError
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
