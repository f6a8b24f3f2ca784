"""The part of a text stream that a guard may release.

A guard examines windows of `window` characters. Each begins `overlap` characters before the end of the one before, so
every span of at most `overlap` + 1 characters is whole in one window. After a window has passed, its last `overlap`
characters are held until the next window has passed, because a forbidden span may begin in them. The end of the text
releases everything that passed.

A character is a code point of Unicode. Windows do not depend on how the stream is cut into chunks.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass, field

CHARACTERS_PER_TOKEN = 4
"""For windows that are configured in tokens: an estimate, so that windows do not depend on a tokenizer."""
MAX_WINDOW = 65_536
MAX_ARGUMENTS = 4 * 1024 * 1024
"""Characters of all tool calls of one answer that are held."""
MAX_NAME = 1024
"""Characters of the name of a tool."""


class GuardWindow:
    """Collects a stream, provides its windows in order, and releases the text that has passed.

    After each `feed` and after `end`, the caller examines `due()` until it is None, and reports `passed` or `blocked`.
    Between these calls at most `window` characters are held.
    """

    def __init__(self, window: int, overlap: int) -> None:
        if not 0 <= overlap < window <= MAX_WINDOW:
            raise ValueError(f"the overlap is less than the window, which has at most {MAX_WINDOW} characters")
        self._window = window
        self._overlap = overlap
        self._text = ""
        self._begin = 0
        """The place in `_text` of the first character that is not released: the begin of the next window."""
        self._examined = 0
        """The end in `_text` of the last window that passed."""
        self._ended = False

    @property
    def held(self) -> int:
        """Characters that are neither released nor discarded."""
        return len(self._text) - self._begin

    def feed(self, text: str) -> None:
        """Add the next characters of the stream."""
        if not self._ended:
            self._text = self._text[self._begin :] + text
            self._examined -= self._begin
            self._begin = 0

    def end(self) -> None:
        """Mark the end of the stream."""
        self._ended = True

    def due(self) -> str | None:
        """The window to examine; None if the stream has too little text for it, or has been examined to its end."""
        end = self._begin + self._window
        if end <= len(self._text):
            return self._text[self._begin : end] if end > self._examined else None
        return self._text[self._begin :] if self._ended and self._examined < len(self._text) else None

    def passed(self) -> str:
        """Release text after the due window has passed."""
        self._examined = min(self._begin + self._window, len(self._text))
        is_last = self._ended and self._examined == len(self._text)
        return self._release(len(self._text) if is_last else self._begin + self._window - self._overlap)

    def rest(self) -> str:
        """Release the end of a stream whose last window has passed before `end`."""
        return self._release(len(self._text)) if self._ended and self._examined == len(self._text) else ""

    def blocked(self, begin: int | None = None) -> str:
        """Release the text before a forbidden span, and discard everything after it.

        `begin` is the place of the span in the due window; without it nothing of the window is released.
        """
        end = self._begin + min(max(begin or 0, 0), self._window)
        released = self._release(min(end, len(self._text)))
        self._text, self._begin, self._examined, self._ended = "", 0, 0, True
        return released

    def _release(self, end: int) -> str:
        released, self._begin = self._text[self._begin : end], max(self._begin, end)
        return released


def windows_of(text: str, window: int, overlap: int) -> Iterator[str]:
    """The windows of a complete text: of a request, of an answer that is not streamed, of a tool call."""
    guard = GuardWindow(window, overlap)
    guard.feed(text)
    guard.end()
    while (due := guard.due()) is not None:
        yield due
        guard.passed()


class CharacterDecoder:
    """Joins characters that the chunks of a stream cut: bytes of UTF-8, or halves of surrogate pairs.

    Bytes that are not UTF-8 and halves without their other half become U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._half = ""

    def feed(self, chunk: bytes | str) -> str:
        """The complete characters up to the end of this chunk."""
        if isinstance(chunk, bytes):
            return self._decoder.decode(chunk)
        text = self._half + chunk
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return _whole(text[: len(text) - len(self._half)])

    def end(self) -> str:
        """The rest of the stream."""
        half, self._half = self._half, ""
        return self._decoder.decode(b"", final=True) + _whole(half)


def _whole(text: str) -> str:
    """Surrogate pairs as the characters that they encode, and single surrogates as U+FFFD."""
    if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ToolCallOverflowError(Exception):
    """The tool calls of an answer are larger than a guard holds."""


@dataclass(slots=True)
class HeldToolCall:
    """One tool call of a stream: the name and the arguments so far."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text that a guard examines."""
        return f"{self.name}\n{''.join(self.arguments)}"


class HeldToolCalls:
    """Holds the tool calls of one answer until they are complete: a part of the arguments cannot be examined."""

    def __init__(self) -> None:
        self._calls: dict[int, HeldToolCall] = {}
        self._size = 0

    def feed(self, index: int, name: str = "", arguments: str = "") -> None:
        """Add a chunk of a tool call. Raises `ToolCallOverflowError`."""
        self._size += 1 + len(name) + len(arguments)
        if self._size > MAX_ARGUMENTS:
            raise ToolCallOverflowError(f"the tool calls of an answer have more than {MAX_ARGUMENTS} characters")
        call = self._calls.setdefault(index, HeldToolCall())
        if len(call.name) + len(name) > MAX_NAME:
            raise ToolCallOverflowError(f"the name of a tool call has more than {MAX_NAME} characters")
        call.name += name
        call.arguments.append(arguments)

    def complete(self) -> dict[int, HeldToolCall]:
        """The tool calls by their indexes, in this order, once the answer has ended. They are held no longer."""
        calls = {index: self._calls[index] for index in sorted(self._calls)}
        self._calls, self._size = {}, 0
        return calls
