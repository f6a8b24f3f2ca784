"""Tokenizes texts into rows. Needs an extra."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from adapters.errors import CallerError, ContextTooLong
from adapters.wire.openai.embeddings import Inputs
from config.schema.config import EmbeddingsConfig

FILE = "tokenizer.json"
INLINE = 16 * 1024
"""Characters that are tokenized on the event loop; longer texts are tokenized in a thread, which delays no other
request.
"""
SLICE = 64 * 1024
"""Tokens that are examined in one turn of the loop."""
LONGEST_WORD = 100
"""Characters of a word that a vocabulary of words has no token for and that is one token, as in BERT's."""

Row = list[int]


class TokenizerError(ValueError):
    """A tokenizer cannot be used. The message is one sentence for operators."""


def tokenizer(name: str) -> Tokenizer:
    """Load a tokenizer, again if its file has changed. Raises `TokenizerError`."""
    if name.startswith("hf:"):
        return _load(name, 0)
    path = Path(name)
    path = path / FILE if path.is_dir() else path
    try:
        return _load(str(path), path.stat().st_mtime_ns)
    except OSError as error:
        raise TokenizerError(f"tokenizer {name}: {error.strerror}") from None


@lru_cache(64)
def _load(name: str, changed: int) -> Tokenizer:
    try:
        made = Tokenizer.from_pretrained(name[3:]) if name.startswith("hf:") else Tokenizer.from_file(name)
    except Exception as error:  # the library has no class of its own for it
        raise TokenizerError(f"tokenizer {name}: {error}") from None
    made.no_padding()
    made.no_truncation()
    return made


async def _highest(rows: list[Row]) -> int:
    """The highest token. Other tasks run between slices of a long row."""
    highest = 0
    for row in rows:
        for at in range(0, len(row), SLICE):
            highest = max(highest, *row[at : at + SLICE])
            if len(row) > SLICE:
                await asyncio.sleep(0)
    return highest


class TextBatch(NamedTuple):
    """Rows of similar length, and the indices of their texts."""

    places: list[int]
    rows: list[Row]


class TextTokenizer:
    """Tokenizes texts for one model."""

    def __init__(self, config: EmbeddingsConfig) -> None:
        self._tokenizer = tokenizer(config.tokenizer)
        self._vocabulary = self._tokenizer.get_vocab_size()
        self._max = config.max_tokens
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._most = self._max * max(longest, LONGEST_WORD)
        """Characters: a longer text certainly has more tokens than the model accepts."""
        self._cut = config.too_long == "cut"
        self._batch = config.batch

    async def rows(self, given: Inputs) -> list[Row]:
        """The tokens of each text. Raises `CallerError`."""
        rows = [tokens for tokens in given if isinstance(tokens, list)]
        if not rows:
            rows = await self._encoded([text for text in given if isinstance(text, str)])
        elif await _highest(rows) >= self._vocabulary:
            raise CallerError(f"`input` has a token beyond the {self._vocabulary} of this model.", param="input")
        return [self._fitting(row) for row in rows]

    async def _encoded(self, texts: list[str]) -> list[Row]:
        if not self._cut and any(len(text) > self._most for text in texts):  # encoding it would only take time
            message = f"A text is longer than the {self._max} tokens that this model takes."
            raise ContextTooLong(message, param="input")
        texts = [text[: self._most] for text in texts]
        if sum(map(len, texts)) <= INLINE:
            return self._encode(texts)
        return await asyncio.to_thread(self._encode, texts)

    def _encode(self, texts: list[str]) -> list[Row]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _fitting(self, row: Row) -> Row:
        if not row:
            raise CallerError("`input` has a text without any token.", param="input")
        if len(row) <= self._max:
            return row
        if not self._cut:
            message = f"A text of {len(row)} tokens is longer than the {self._max} that this model takes."
            raise ContextTooLong(message, param="input")
        return [*row[: self._max - 1], row[-1]]  # the last one is the model's own sign of an end

    def batches(self, rows: Sequence[Row]) -> list[TextBatch]:
        """Batches of texts of similar length, so that they need little padding."""
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        cuts = [order[i : i + self._batch] for i in range(0, len(order), self._batch)]
        return [TextBatch(places, [rows[place] for place in places]) for places in cuts]
