"""The nodes `tokenize` and `detokenize`: with the tokenizer of a file, or with that of a model's servers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from tokenizers import Tokenizer

from adapters import offload
from adapters.errors import BackendError, CallerError, ContextTooLong, StepFailed
from adapters.requests import AppRequest
from adapters.tensors import Tensor
from adapters.wire import decoding
from config.schema.pipelines.leaves import DetokenizeConfig, TokenizeConfig
from gateway.features.embeddings.texts import INLINE, LONGEST_WORD, tokenizer
from gateway.features.pipelines.each import for_each
from gateway.features.pipelines.scope import REQUEST, FreeNode, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, array_of, elements_of, tensor_from

MAX_TEXTS = 1024
MAX_TOKENS = 4 * 1024 * 1024
"""Tokens of one request, with those that fill shorter rows."""
AT_ONCE = 8
"""Texts that are sent at the same time, each in a request of its own."""
MAX_ANSWER = 64 * 1024 * 1024
_encode = msgspec.json.Encoder().encode
_loaded: dict[str, Tokenizer] = {}


def texts_of(value: Value) -> Sequence[str]:
    """One text or several. Raises `CallerError`."""
    try:
        texts = elements_of(value) if isinstance(value, Tensor) else value if isinstance(value, list) else [value]
    except UnusableValueError as error:
        raise CallerError(f"The texts cannot be encoded: {error}.", param="text") from None
    if not texts or len(texts) > MAX_TEXTS or not all(isinstance(text, str) for text in texts):
        raise CallerError(f"`text` is not a text, or 1 to {MAX_TEXTS} texts.", param="text")
    return texts


def fitting(row: list[int], config: TokenizeConfig) -> list[int]:
    """A row of at most `max_tokens`. Raises `ContextTooLong` for a longer one that is not to be cut."""
    most = config.max_tokens
    if len(row) > most and config.too_long == "refuse":
        raise ContextTooLong(f"A text has {len(row)} tokens, and {most} are the most.", param="text")
    return row[:most]


def padded(rows: Sequence[list[int]], pad_id: int) -> dict[str, Value]:
    """The outputs of `tokenize`: INT64, with rows padded to the longest. Raises `CallerError` for too many tokens."""
    width = max(map(len, rows))
    if width * len(rows) > MAX_TOKENS:
        raise CallerError(f"The texts have more than {MAX_TOKENS} tokens.", param="text")
    ids = np.full((len(rows), width), pad_id, np.int64)
    mask = np.zeros_like(ids)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    types, counts = np.zeros_like(ids), mask.sum(axis=1, keepdims=True)
    arrays = {"ids": ids, "mask": mask, "types": types, "count": counts}
    return {name: tensor_from(name, "INT64", array) for name, array in arrays.items()}


def rows_of(value: Value) -> Any:
    """Tokens as an array of rows. Raises `UnusableValueError`."""
    try:
        array = np.asarray(array_of(value))
    except (ValueError, TypeError, OverflowError):
        raise UnusableValueError("`ids` has rows that differ in length") from None
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise UnusableValueError("`ids` is not a row, or rows, of integers")
    if array.size > MAX_TOKENS or (len(array) > MAX_TEXTS and array.ndim == 2):
        raise UnusableValueError(f"`ids` has more than {MAX_TEXTS} rows or {MAX_TOKENS} tokens")
    return array.reshape(1, -1) if array.ndim == 1 else array


def text_output(texts: list[str]) -> dict[str, Value]:
    """The output of `detokenize`: a text, or a list for several rows."""
    return {"text": texts[0] if len(texts) == 1 else texts}


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Text(msgspec.Struct):
    prompt: str


_tokens = msgspec.json.Decoder(_Tokens).decode
_text = msgspec.json.Decoder(_Text).decode


class ServedTokenizeNode(FreeNode):
    """Encodes texts as the servers of a model encode a prompt."""

    def __init__(self, config: TokenizeConfig) -> None:
        assert config.model is not None
        self._model = config.model
        self._config = config

    async def run(self, scope: StepScope) -> Output:
        async def encoded(text: str) -> list[int]:
            fields = {"model": self._model, "prompt": text, "add_special_tokens": self._config.special}
            body = await answered(scope, self._model, "/tokenize", fields)
            try:
                row = (await offload.parse(body, _tokens, body)).tokens
            except decoding.MALFORMED_JSON:
                raise _no_answer() from None
            return fitting(row, self._config)

        texts = texts_of(await scope.value(f"{REQUEST}.text"))
        return Output(padded(await for_each(texts, encoded, AT_ONCE), self._config.pad_id))


class ServedDetokenizeNode(FreeNode):
    """Decodes rows of tokens as the servers of a model do."""

    def __init__(self, config: DetokenizeConfig) -> None:
        assert config.model is not None
        self._model = config.model
        self._skip_special = config.skip_special

    async def run(self, scope: StepScope) -> Output:
        try:
            rows = rows_of(await scope.value(f"{REQUEST}.ids"))
            if rows.size and int(rows.min()) < 0:
                raise UnusableValueError("`ids` has a negative token")
        except UnusableValueError as error:
            raise scope.fail(error) from None

        async def decoded(row: list[int]) -> str:
            fields = {"model": self._model, "tokens": row, "skip_special_tokens": self._skip_special}
            body = await answered(scope, self._model, "/detokenize", fields)
            try:
                return (await offload.parse(body, _text, body)).prompt
            except decoding.MALFORMED_JSON:
                raise _no_answer() from None

        return Output(text_output(await for_each(rows.tolist(), decoded, AT_ONCE)))


async def answered(scope: StepScope, model: str, path: str, fields: dict[str, object]) -> bytes:
    """The body of a model's answer to a call of a path. Raises `InferenceError`."""
    assert scope.call.models is not None
    body = _encode(fields)
    request = AppRequest(model=model, path=path, body=body, size=len(body), content_type="application/json", stale=True)
    answer = await scope.call.models.call(model, request, scope.call)
    if answer.body is not None:
        return answer.body
    pieces, size = [], 0
    try:
        async for piece in answer:
            size += len(piece)
            if size > MAX_ANSWER:
                raise BackendError(f"The upstream's answer has more than {MAX_ANSWER} bytes.")
            pieces.append(piece)
    finally:
        await answer.aclose()
    return b"".join(pieces)


def _no_answer() -> StepFailed:
    return StepFailed("The servers of the model answer with no tokens and no text.")


def load(name: str) -> Tokenizer:
    """Load a tokenizer, again if its file has changed. Raises `TokenizerError`."""
    _loaded[name] = tokenizer(name)
    return _loaded[name]


class TokenizeNode(FreeNode):
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


class DetokenizeNode(FreeNode):
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
