"""The nodes `tokenize` and `detokenize`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from adapters.errors import CallerError, ContextTooLong
from adapters.tensors import Tensor
from config.schema.pipelines.tokens import DetokenizeConfig, TokenizeConfig
from gateway.embeddings.texts import INLINE, LONGEST_WORD, tokenizer
from gateway.pipelines.arrays import array_of, tensor_from
from gateway.pipelines.scope import REQUEST, Bound, Estimate, Output, StepScope
from gateway.pipelines.values import UnusableValueError, Value, elements_of

MAX_TEXTS = 1024
MAX_TOKENS = 4 * 1024 * 1024
"""Tokens of one request, with those that fill shorter rows."""


_loaded: dict[str, Tokenizer] = {}


def load(name: str) -> Tokenizer:
    """Load a tokenizer, again if its file has changed. Raises `TokenizerError`."""
    _loaded[name] = tokenizer(name)
    return _loaded[name]


class TokenizeNode:
    """Encodes texts. Many characters are encoded in a thread: the tokenizer releases Python's lock."""

    def __init__(self, config: TokenizeConfig) -> None:
        self._config = config
        self._tokenizer = _loaded.get(config.tokenizer) or load(config.tokenizer)
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._most = config.max_tokens * max(longest, LONGEST_WORD)
        """Characters: a longer text has more than `max_tokens` tokens."""

    async def run(self, scope: StepScope) -> Output:
        texts = _texts(await scope.value(f"{REQUEST}.text"))
        if self._config.too_long == "refuse" and any(len(text) > self._most for text in texts):
            raise ContextTooLong(f"A text is longer than {self._config.max_tokens} tokens.", param="text")
        texts = [text[: self._most] for text in texts]
        if sum(map(len, texts)) <= INLINE:
            return Output(self._encoded(texts))
        return Output(await asyncio.to_thread(self._encoded, texts))

    def _encoded(self, texts: list[str]) -> dict[str, Value]:
        config = self._config
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=config.special)
        rows = [self._fitting(encoding.ids) for encoding in encodings]
        width = max(map(len, rows))
        if width * len(rows) > MAX_TOKENS:
            raise CallerError(f"The texts have more than {MAX_TOKENS} tokens.", param="text")
        ids = np.full((len(rows), width), config.pad_id, np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        types, counts = np.zeros_like(ids), mask.sum(axis=1, keepdims=True)
        arrays = {"ids": ids, "mask": mask, "types": types, "count": counts}
        return {name: tensor_from(name, "INT64", array) for name, array in arrays.items()}

    def _fitting(self, row: list[int]) -> list[int]:
        most = self._config.max_tokens
        if len(row) <= most:
            return row
        if self._config.too_long == "refuse":
            raise ContextTooLong(f"A text has {len(row)} tokens, and {most} are the most.", param="text")
        return [*row[: most - 1], row[-1]] if self._config.special else row[:most]  # the end is a special token

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()


class DetokenizeNode:
    """Decodes rows of tokens."""

    def __init__(self, config: DetokenizeConfig) -> None:
        self._config = config
        self._tokenizer = _loaded.get(config.tokenizer) or load(config.tokenizer)
        self._vocabulary = self._tokenizer.get_vocab_size()

    async def run(self, scope: StepScope) -> Output:
        try:
            rows = self._rows(await scope.value(f"{REQUEST}.ids"))
        except UnusableValueError as error:
            raise scope.fail(error) from None
        small = rows.size <= INLINE
        texts = self._decoded(rows) if small else await asyncio.to_thread(self._decoded, rows)
        return Output({"text": texts[0] if len(texts) == 1 else texts})

    def _rows(self, value: Value) -> Any:
        """The tokens as rows. Raises `UnusableValueError`."""
        try:
            array = np.asarray(array_of(value))
        except (ValueError, TypeError, OverflowError):
            raise UnusableValueError("`ids` has rows that differ in length") from None
        if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
            raise UnusableValueError("`ids` is not a row, or rows, of integers")
        if array.size > MAX_TOKENS or (len(array) > MAX_TEXTS and array.ndim == 2):
            raise UnusableValueError(f"`ids` has more than {MAX_TEXTS} rows or {MAX_TOKENS} tokens")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < self._vocabulary:
            raise UnusableValueError(f"`ids` has a token outside of the {self._vocabulary} of the tokenizer")
        return array.reshape(1, -1) if array.ndim == 1 else array

    def _decoded(self, rows: Any) -> list[str]:
        return self._tokenizer.decode_batch(rows.tolist(), skip_special_tokens=self._config.skip_special)

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()


def _texts(value: Value) -> Sequence[str]:
    """One text or several. Raises `CallerError`."""
    try:
        texts = elements_of(value) if isinstance(value, Tensor) else value if isinstance(value, list) else [value]
    except UnusableValueError as error:
        raise CallerError(f"The texts cannot be encoded: {error}.", param="text") from None
    if not texts or len(texts) > MAX_TEXTS or not all(isinstance(text, str) for text in texts):
        raise CallerError(f"`text` is not a text, or 1 to {MAX_TEXTS} texts.", param="text")
    return texts
