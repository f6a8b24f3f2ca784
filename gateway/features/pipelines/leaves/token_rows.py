"""Rows of tokens: tensors of them, and the texts and the rows in the inputs of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.errors import CallerError, ContextTooLong
from adapters.tensors import Tensor
from config.schema.pipelines.leaves import TokenizeConfig
from gateway.features.pipelines.arrays import array_of, tensor_from
from gateway.features.pipelines.values import UnusableValueError, Value, elements_of

MAX_TEXTS = 1024
MAX_TOKENS = 4 * 1024 * 1024
"""Tokens of one request, with those that fill shorter rows."""


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
