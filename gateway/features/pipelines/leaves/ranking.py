"""Orders candidates by the vectors or the scores of a model. Plain functions, which may run in a worker process."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from adapters.errors import BackendError
from adapters.tensors import Tensor
from adapters.wire import decoding
from gateway.features.pipelines.arrays import array_of
from gateway.features.pipelines.values import UnusableValueError
from policies.pipelines.rerank import Ranked, RerankError, cosine, top


class _Entry(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Body(msgspec.Struct):
    data: list[_Entry]


_body = msgspec.json.Decoder(_Body).decode


def rank_embedded(body: bytes, count: int, best: int) -> list[Ranked]:
    """The best candidates by an answer of OpenAI's embeddings: of the query, then of `count` candidates.

    Raises `BackendError`.
    """
    try:
        data = sorted(_body(body).data, key=lambda entry: entry.index)
    except decoding.MALFORMED_JSON as error:
        raise _unusable(f"it is not a response with embeddings: {error}") from None
    if len(data) != count + 1:
        raise _unusable(f"it has {len(data)} vectors for {count + 1} texts")
    if len({len(entry.embedding) for entry in data}) > 1:
        raise _unusable("its vectors differ in length")
    vectors = np.array([entry.embedding for entry in data], np.float64)
    try:
        return top(cosine(vectors[0], vectors[1:]), best)
    except RerankError as error:
        raise _unusable(str(error)) from None


def rank_scored(scores: Tensor, count: int, best: int) -> list[Ranked]:
    """The best candidates by a tensor of scores, one for each. Raises `BackendError`."""
    try:
        array: Any = array_of(scores)
    except UnusableValueError as error:
        raise _unusable(str(error)) from None
    if scores.datatype in ("BYTES", "BOOL") or array.size != count:
        shown = f"`{scores.name}` is {scores.datatype} {list(scores.shape)}"
        raise _unusable(f"{shown}, and {count} candidates need one number each")
    try:
        return top(array.reshape(-1), best)
    except RerankError as error:
        raise _unusable(str(error)) from None


def _unusable(reason: str) -> BackendError:
    return BackendError(f"The answer of the model cannot order the candidates: {reason}.", code="upstream_bad_response")
