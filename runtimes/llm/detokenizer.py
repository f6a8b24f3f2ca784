"""Tokens to text as they come: no half character, nothing of a stop string."""

import codecs
from collections.abc import Mapping, Sequence

from runtimes.llm.tokenizer import Tokenizer


class Detokenizer:
    """Turns one answer's tokens into text. All that `push` and `flush` return is what `decode` of all returns."""

    def __init__(self, tokenizer: Tokenizer, shown: Mapping[int, bytes] | None = None) -> None:
        """`shown` control tokens are spelled in the text."""
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is complete with this token; empty while a character is open."""
        return self._decoder.decode(self._tokenizer.piece(token_id) or self._shown.get(token_id, b""))

    def flush(self) -> str:
        """The end: U+FFFD if a character was left open."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Cuts a text where the first of several stop strings is complete, and holds back what may begin one.

    The string that ends first wins; of those that end together, the longest. `matched` is the one that did; it stays
    in the text if asked to. The result does not depend on how the text was cut into pushes.
    """

    def __init__(self, stops: Sequence[str], *, included: bool = False) -> None:
        self._stops = stops
        self._included = included
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The part of the text so far that is surely not of a stop string. Nothing may follow a match."""
        if not self._stops:
            return text
        text = self._held + text
        ends = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if ends:
            end, start, self.matched = min(ends)
            self._held = ""
            return text[: end if self._included else start]
        keep = max(overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back: the text has ended before any stop string was complete."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a beginning of `stop`."""
    start = max(0, len(text) - len(stop) + 1)
    while (start := text.find(stop[0], start)) >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0
