"""Converts a stream of tokens to text; never emits an incomplete character."""

import codecs
from collections.abc import Mapping

from runtimes.llm.text.tokenizer import Tokenizer


class Detokenizer:
    """Converts one answer's tokens to text. The results of `push` and `flush` together equal `decode` of all tokens."""

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


def overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a beginning of `stop`."""
    start = max(0, len(text) - len(stop) + 1)
    while (start := text.find(stop[0], start)) >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0
