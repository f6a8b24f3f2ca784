"""Scores and selects candidates: cosine similarity of vectors, and the top k by score. Needs an extra."""

from collections.abc import Sequence
from math import isnan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_ELEMENTS = 64 * 1024 * 1024
"""Elements of all vectors of one comparison: 256 MiB in FP32."""
_ROWS = 4096
"""Vectors that are converted to doubles at once."""


class RerankError(Exception):
    """Candidates cannot be scored or selected."""


class Ranked(NamedTuple):
    """A selected candidate: its place among the candidates, and its score."""

    place: int
    score: float


def top(scores: Sequence[float] | NDArray[Any], count: int) -> list[Ranked]:
    """The candidates with the highest scores, at most `count`, the best first.

    Equal scores keep the order of the candidates. A candidate whose score is NaN is never selected. Raises
    `RerankError` if every score is NaN.
    """
    listed = [float(score) for score in (scores.reshape(-1) if isinstance(scores, np.ndarray) else scores)]
    valid = [Ranked(index, score) for index, score in enumerate(listed) if not isnan(score)]
    if listed and not valid:
        raise RerankError("every score is NaN")
    return sorted(valid, key=lambda each: -each.score)[: max(count, 0)]


def cosine(query: NDArray[Any], candidates: NDArray[Any]) -> NDArray[np.float64]:
    """The cosine of a vector [d] with each of the vectors [n, d], in doubles: [n].

    A vector of zeros has the cosine 0 with every vector, a vector with NaN or infinity the cosine NaN. Raises
    `RerankError` for tensors of other shapes or without numbers.
    """
    query = query.reshape(-1) if query.ndim == 2 and query.shape[0] == 1 else query
    if query.ndim != 1 or candidates.ndim != 2 or candidates.shape[1] != query.shape[0] or not query.size:
        shapes = f"{list(query.shape)} and {list(candidates.shape)}"
        raise RerankError(f"a cosine requires a vector [d] and vectors [n, d], these are {shapes}")
    if query.dtype.kind not in "iuf" or candidates.dtype.kind not in "iuf":
        raise RerankError("a cosine requires tensors of numbers")
    if candidates.size > MAX_ELEMENTS:
        raise RerankError(f"the vectors have more than {MAX_ELEMENTS} elements")
    unit = _units(query[None])[0]
    rows = range(0, len(candidates), _ROWS)
    with np.errstate(all="ignore"):
        parts = [_units(candidates[begin : begin + _ROWS]) @ unit for begin in rows]
    result: NDArray[np.float64] = np.clip(np.concatenate(parts), -1.0, 1.0) if parts else np.empty(0, np.float64)
    return result


def _units(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """The vectors scaled to length 1. Scaling by the largest element first avoids overflow."""
    values = vectors.astype(np.float64)
    with np.errstate(all="ignore"):
        largest = np.abs(values).max(axis=1, keepdims=True)
        values = values / np.where(largest == 0, 1.0, largest)
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        units: NDArray[np.float64] = values / np.where(lengths == 0, 1.0, lengths)
    return units
