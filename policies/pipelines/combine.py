"""Combines tensors of the members of an ensemble, as numpy arrays. Needs an extra.

A part is the answer of one member. Members without an answer are absent from the parts, so a weighted mean is
renormalised over the present ones. A NaN in a part is an error of its member, never a part of a result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from policies.pipelines.votes import UNIT, Voter

Array = NDArray[Any]
Combination = Literal["vote", "mean", "weighted", "concat", "first"]
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a combined tensor."""
MAX_VOTES = 4 * 1024 * 1024
"""Rows of a vote, times the square of the members: about 50 ms."""


class CombineError(Exception):
    """Parts cannot be combined. `member` is the member at fault; empty if the parts do not fit each other."""

    def __init__(self, message: str, member: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.member = member


@dataclass(frozen=True, slots=True, eq=False)
class MemberTensor:
    """The tensor of one member. `weight` is in units of `votes.units`, `order` the place in the configuration."""

    member: str
    value: Array
    weight: int = UNIT
    order: int = 0


def mean(parts: Sequence[MemberTensor]) -> Array:
    """The mean of float tensors of one shape and datatype, computed in doubles. Raises `CombineError`."""
    return weighted_mean([MemberTensor(part.member, part.value, UNIT, part.order) for part in parts])


def weighted_mean(parts: Sequence[MemberTensor]) -> Array:
    """The same with each part multiplied by its share of the present weights."""
    first = _one_kind(parts)
    for part in parts:
        if part.value.dtype.kind != "f":
            raise CombineError(f"{part.member}: a mean requires floats, not {part.value.dtype}", part.member)
        _refuse_nan(part)
    total = sum(part.weight for part in parts)
    result = np.zeros(first.shape, np.float64)
    with np.errstate(all="ignore"):
        for part in parts:
            result += part.value.astype(np.float64) * (part.weight / total)
        if np.isnan(result).any():
            raise CombineError("the mean of infinities of both signs is not a number")
        return result.astype(first.dtype)


def concat(parts: Sequence[MemberTensor], axis: int = 0) -> Array:
    """The tensors one after the other along an axis, in the configuration's order. Raises `CombineError`."""
    ordered = sorted(parts, key=lambda part: part.order)
    first = _first(ordered)
    if not -first.ndim <= axis < first.ndim:
        raise CombineError(f"{ordered[0].member}: a tensor with {first.ndim} dimensions has no axis {axis}")
    for part in ordered[1:]:
        _check_datatype(ordered[0], part)
        if _without(part.value.shape, axis) != _without(first.shape, axis) or part.value.ndim != first.ndim:
            shapes = f"{list(first.shape)} and {list(part.value.shape)}"
            raise CombineError(f"{part.member}: the shapes {shapes} differ beyond axis {axis}", part.member)
    if sum(part.value.nbytes for part in ordered) > MAX_BYTES:
        raise CombineError(f"the combined tensor has more than {MAX_BYTES} bytes")
    return np.concatenate([part.value for part in ordered], axis)


def labels(part: MemberTensor) -> NDArray[np.int64]:
    """The label of each row: the position of the largest score in the last dimension, or the integers themselves.

    Raises `CombineError` for NaN, texts, booleans, and scores without classes.
    """
    value = part.value
    if value.dtype.kind in "iu":
        return value.astype(np.int64)
    if value.dtype.kind != "f":
        raise CombineError(f"{part.member}: a vote requires scores or integer labels, not {value.dtype}", part.member)
    if not value.ndim or not value.shape[-1]:
        raise CombineError(f"{part.member}: the scores have no classes: shape {list(value.shape)}", part.member)
    _refuse_nan(part)
    positions: NDArray[np.int64] = value.argmax(axis=-1).astype(np.int64)
    return positions


def vote(parts: Sequence[MemberTensor]) -> NDArray[np.int64]:
    """The winning label of each row, by the rules of `votes`. Raises `CombineError`."""
    chosen, _ = _tally(parts, ())
    return chosen


def decided(parts: Sequence[MemberTensor], missing: Sequence[Voter]) -> NDArray[np.int64] | None:
    """The winning labels if no missing member can change one of them, otherwise None. Raises `CombineError`."""
    if not parts:
        return None
    chosen, certain = _tally(parts, missing)
    return chosen if certain else None


def _tally(parts: Sequence[MemberTensor], missing: Sequence[Voter]) -> tuple[NDArray[np.int64], bool]:
    """The winning labels, and whether they win against the same votes with all missing members added to a rival."""
    if not parts:
        raise CombineError("there is nothing to combine")
    votes = [labels(part) for part in parts]
    shape = votes[0].shape
    for part, each in zip(parts, votes, strict=True):
        if each.shape != shape:
            message = f"{part.member}: votes of shape {list(each.shape)}, {parts[0].member} has {list(shape)}"
            raise CombineError(message, part.member)
    matrix = np.stack(votes).reshape(len(parts), -1)
    if matrix.size * len(parts) > MAX_VOTES:
        raise CombineError(f"a vote of {matrix.shape[1]} rows and {len(parts)} members is too large")
    return _decide(matrix, shape, parts, missing)


def _decide(
    matrix: NDArray[np.int64], shape: tuple[int, ...], parts: Sequence[MemberTensor], missing: Sequence[Voter]
) -> tuple[NDArray[np.int64], bool]:
    weights = np.array([part.weight for part in parts], np.int64)[:, None]
    orders = np.array([part.order for part in parts], np.int64)[:, None]
    total, heaviest, precedence = _supports(matrix, weights, orders)
    best = np.zeros(matrix.shape[1], np.int64)
    rows = np.arange(matrix.shape[1])
    for each in range(1, len(parts)):
        rival = total[each], heaviest[each], precedence[each]
        best = np.where(_greater(rival, (total[best, rows], heaviest[best, rows], precedence[best, rows])), each, best)
    chosen = matrix[best, rows]
    if not missing:
        return chosen.reshape(shape), True
    leader = total[best, rows], heaviest[best, rows], precedence[best, rows]
    more = sum(voter.weight for voter in missing)
    heavy, early = max(voter.weight for voter in missing), max(-voter.order for voter in missing)
    certain = _greater(leader, (np.full_like(chosen, more), np.full_like(chosen, heavy), np.full_like(chosen, early)))
    for each in range(len(parts)):
        rival = total[each] + more, np.maximum(heaviest[each], heavy), np.maximum(precedence[each], early)
        certain &= (matrix[each] == chosen) | _greater(leader, rival)
    return chosen.reshape(shape), bool(certain.all())


_Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _supports(matrix: NDArray[np.int64], weights: NDArray[np.int64], orders: NDArray[np.int64]) -> _Columns:
    """`votes.Support` of each member's label in each row: arrays of the shape members × rows."""
    total, heaviest, precedence = np.empty_like(matrix), np.empty_like(matrix), np.empty_like(matrix)
    for each in range(len(matrix)):
        same = matrix == matrix[each]
        total[each] = (same * weights).sum(axis=0)
        heaviest[each] = (same * weights).max(axis=0)
        precedence[each] = np.where(same, -orders, np.iinfo(np.int64).min).max(axis=0)
    return total, heaviest, precedence


def _greater(first: _Columns, second: _Columns) -> NDArray[np.bool_]:
    """Whether one support is greater than another, for each row."""
    greater, equal = first[2] > second[2], first[1] == second[1]
    result: NDArray[np.bool_] = (first[0] > second[0]) | (
        (first[0] == second[0]) & ((first[1] > second[1]) | (equal & greater))
    )
    return result


def _first(parts: Sequence[MemberTensor]) -> Array:
    if not parts:
        raise CombineError("there is nothing to combine")
    return parts[0].value


def _one_kind(parts: Sequence[MemberTensor]) -> Array:
    first = _first(parts)
    for part in parts[1:]:
        _check_datatype(parts[0], part)
        if part.value.shape != first.shape:
            message = f"{part.member}: shape {list(part.value.shape)}, {parts[0].member} has {list(first.shape)}"
            raise CombineError(message, part.member)
    return first


def _check_datatype(first: MemberTensor, part: MemberTensor) -> None:
    if part.value.dtype != first.value.dtype:
        message = f"{part.member}: datatype {part.value.dtype}, {first.member} has {first.value.dtype}"
        raise CombineError(message, part.member)


def _refuse_nan(part: MemberTensor) -> None:
    if np.isnan(part.value).any():
        raise CombineError(f"{part.member}: the tensor has elements that are not numbers (NaN)", part.member)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    sizes = list(shape)
    if -len(sizes) <= axis < len(sizes):
        del sizes[axis]
    return tuple(sizes)
