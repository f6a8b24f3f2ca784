"""The nodes `tokenize` and `detokenize` with the tokenizer of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from adapters.errors import ContextTooLong
from config.schema.pipelines.leaves import DetokenizeConfig, TokenizeConfig
from gateway.features.embeddings.texts import INLINE, LONGEST_WORD, tokenizer
from gateway.features.pipelines.leaves.token_rows import fitting, padded, rows_of, text_output, texts_of
from gateway.features.pipelines.scope import REQUEST, Bound, Estimate, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value

_loaded: dict[str, Tokenizer] = {}


def load(name: str) -> Tokenizer:
    """Load a tokenizer, again if its file has changed. Raises `TokenizerError`."""
    _loaded[name] = tokenizer(name)
    return _loaded[name]


class TokenizeNode:
    """Encodes texts. Many characters are encoded in a thread: the tokenizer releases Python's lock."""

    def __init__(self, config: TokenizeConfig) -> None:
        self._config = config
        assert config.tokenizer is not None
        self._tokenizer = _loaded.get(config.tokenizer) or load(config.tokenizer)
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._most = config.max_tokens * max(longest, LONGEST_WORD)
        """Characters: a longer text has more than `max_tokens` tokens."""

    async def run(self, scope: StepScope) -> Output:
        texts = texts_of(await scope.value(f"{REQUEST}.text"))
        if self._config.too_long == "refuse" and any(len(text) > self._most for text in texts):
            raise ContextTooLong(f"A text is longer than {self._config.max_tokens} tokens.", param="text")
        texts = [text[: self._most] for text in texts]
        if sum(map(len, texts)) <= INLINE:
            return Output(self._encoded(texts))
        return Output(await asyncio.to_thread(self._encoded, texts))

    def _encoded(self, texts: Sequence[str]) -> dict[str, Value]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._config.special)
        return padded([self._fitting(encoding.ids) for encoding in encodings], self._config.pad_id)

    def _fitting(self, row: list[int]) -> list[int]:
        short = fitting(row, self._config)
        # the end of the whole row is a special token
        return [*short[:-1], row[-1]] if self._config.special and len(short) < len(row) else short

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()


class DetokenizeNode:
    """Decodes rows of tokens."""

    def __init__(self, config: DetokenizeConfig) -> None:
        assert config.tokenizer is not None
        self._config = config
        self._tokenizer = _loaded.get(config.tokenizer) or load(config.tokenizer)
        self._vocabulary = self._tokenizer.get_vocab_size()

    async def run(self, scope: StepScope) -> Output:
        try:
            rows = rows_of(await scope.value(f"{REQUEST}.ids"))
            if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < self._vocabulary:
                raise UnusableValueError(f"`ids` has a token outside of the {self._vocabulary} of the tokenizer")
        except UnusableValueError as error:
            raise scope.fail(error) from None
        small = rows.size <= INLINE
        texts = self._decoded(rows) if small else await asyncio.to_thread(self._decoded, rows)
        return Output(text_output(texts))

    def _decoded(self, rows: Any) -> list[str]:
        return self._tokenizer.decode_batch(rows.tolist(), skip_special_tokens=self._config.skip_special)

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()
