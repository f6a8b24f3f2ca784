"""Functions on tensors. Needs an extra."""

from math import inf

import numpy as np

from config.expressions.arithmetic import not_a_number, saturated
from config.expressions.arrays import Array, doubles, kind_of
from config.expressions.errors import CompileError, ExpressionError
from config.expressions.operand import Evaluation, Operand
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    NumberType,
    TensorType,
    Value,
    ValueType,
)

_SAFE_SUM = float(1 << 62)
"""Below it, a sum of integers in 64 bits is exact in every order."""


def of_booleans(name: str, argument: Operand, column: int) -> Operand:
    """`any` and `all` of a tensor of booleans."""
    read, reduce = argument.run, np.any if name == "any" else np.all

    def run(at: Evaluation) -> Value:
        array = read(at)
        if array.dtype.kind != "b":
            raise ExpressionError("type", f"{name}(…) requires booleans", column)
        at.spend(array.size, column)
        return bool(reduce(array))

    return Operand(BOOL, run, column)


def reduced(name: str, argument: Operand, column: int) -> Operand:
    """`sum`, `mean`, `min`, `max` and `argmax` of all elements of a tensor."""
    type_ = argument.type
    assert isinstance(type_, TensorType)
    if kind_of(type_) not in ("number", "") and not (name == "sum" and type_.datatype == "BOOL"):
        raise CompileError(f"{name}(…) requires a list or tensor of numbers, this is {type_}", argument.column)
    result = _result(name, type_)
    integer = isinstance(result, NumberType) and result.integer
    certain = type_.shape is not None and 0 not in type_.shape and None not in type_.shape
    empty = "" if name == "sum" or certain else "the tensor may be empty"
    read = argument.run

    def run(at: Evaluation) -> Value:
        array = read(at)
        at.spend(array.size, column)
        if name == "sum":
            return _sum(array, integer, column)
        if not array.size:
            return MISSING
        values = array if array.dtype.kind in "iu" and name != "mean" else doubles(array, column)
        if name == "mean":
            with np.errstate(all="ignore"):
                return float(values.mean())
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise not_a_number(column)
        if name == "argmax":
            return int(values.argmax())
        value = values.min() if name == "min" else values.max()
        return saturated(int(value)) if integer else float(value)

    return Operand(result, run, column, empty, "empty" if empty else None)


def _result(name: str, type_: TensorType) -> ValueType:
    if name == "argmax":
        return NumberType(True, 0, inf)
    integers = type_.datatype is not None and (type_.datatype == "BOOL" or "INT" in type_.datatype)
    return INT if integers and name != "mean" else FLOAT


def _sum(array: Array, integer: bool, column: int) -> int | float:
    with np.errstate(all="ignore"):
        if not integer:
            return float(doubles(array, column).sum())
        about = float(array.sum(dtype=np.float64))
        return int(array.sum(dtype=np.int64)) if abs(about) < _SAFE_SUM else saturated(int(about))


def nan_elements(argument: Operand, column: int) -> Operand:
    """`is_nan` of each element."""
    read = argument.run
    assert isinstance(argument.type, TensorType)
    if kind_of(argument.type) not in ("number", ""):
        raise CompileError(f"is_nan(…) requires numbers, this is {argument.type}", argument.column)

    def run(at: Evaluation) -> Value:
        array = read(at)
        at.spend(array.size, column)
        return np.isnan(doubles(array, column))

    return Operand(TensorType("BOOL", argument.type.shape), run, column)


def softmax(argument: Operand, column: int, unchecked: list[str]) -> Operand:
    """`softmax` along the last dimension."""
    read = argument.run
    assert isinstance(argument.type, TensorType)
    if kind_of(argument.type) not in ("number", ""):
        raise CompileError(f"softmax(…) requires numbers, this is {argument.type}", argument.column)
    if argument.type.shape is None or argument.type.datatype is None:
        unchecked.append(f"column {column}: {argument.type} must have numbers and a dimension")

    def run(at: Evaluation) -> Value:
        array = read(at)
        at.spend(2 * array.size, column)
        if not array.ndim:
            raise ExpressionError("shape", "softmax(…) requires a dimension", column)
        values = doubles(array, column)
        if not values.size:
            return values
        with np.errstate(all="ignore"):
            powers = np.exp(values - values.max(axis=-1, keepdims=True))
            return powers / powers.sum(axis=-1, keepdims=True)

    return Operand(TensorType("FP64", argument.type.shape), run, column)
