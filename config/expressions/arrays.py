"""Tensors in expressions, as numpy arrays. Needs an extra.

Elements are compared and computed as doubles; two integer tensors are compared as integers.
"""

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from config.expressions.operand import Evaluation, Operand
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    BoolType,
    CompileError,
    ExpressionError,
    NumberType,
    StringType,
    TensorType,
    Value,
    ValueType,
    not_a_number,
    saturated,
)

Array = NDArray[Any]
_KINDS = {"BOOL": "b", "BYTES": "O"}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
}  # fmt: skip


def kind_of(type_: ValueType) -> str:
    """The kind of a tensor's elements, or of a single value: `boolean`, `text`, `number`, or empty if not known."""
    if isinstance(type_, TensorType):
        names = {"BOOL": "boolean", "BYTES": "text", None: ""}
        return names.get(type_.datatype, "number")
    names_of_types = {BoolType: "boolean", StringType: "text", NumberType: "number"}
    return names_of_types.get(type(type_), "other")


def checked(type_: TensorType, name: str, column: int) -> Callable[[Value], Value]:
    """The function that checks a tensor against its declaration. It raises `ExpressionError`."""

    def check(value: Value) -> Value:
        if type_.datatype is None and isinstance(value, bool | int | float | str):
            value = _scalar(value)
        if not isinstance(value, np.ndarray) or not _has_datatype(value, type_.datatype):
            return MISSING
        if type_.shape is not None and not _has_shape(value, type_.shape):
            raise ExpressionError("shape", f"`{name}` has the shape {list(value.shape)}, declared is {type_}", column)
        return value

    return check


def _scalar(value: bool | int | float | str) -> Array:
    """A parameter of a request as a tensor of one element."""
    if not isinstance(value, str):
        return np.asarray([saturated(value) if type(value) is int else value])
    array = np.empty(1, object)
    array[0] = value.encode(errors="replace")
    return array


def _has_datatype(value: Array, datatype: str | None) -> bool:
    kind = value.dtype.kind
    if datatype is None:
        return kind in "biufO"
    if datatype.startswith("UINT"):
        return kind == "u"
    if datatype.startswith("INT"):
        return kind == "i"
    return kind == _KINDS.get(datatype, "f")


def _has_shape(value: Array, shape: tuple[int | None, ...]) -> bool:
    return value.ndim == len(shape) and all(
        size in (None, present) for size, present in zip(shape, value.shape, strict=True)
    )


def single(expected: ValueType, column: int) -> Callable[[Value], Value]:
    """The function that returns the only element of a tensor as a type. It raises `ExpressionError`."""

    def read(value: Value) -> Value:
        if value is MISSING:
            return MISSING
        if value.size != 1:
            message = f"a single value is required, the tensor has {value.size} elements"
            raise ExpressionError("shape" if value.size else "empty", message, column)
        return _element(value.reshape(-1)[0], value.dtype.kind, expected, column)

    return read


def _element(item: Any, kind: str, expected: ValueType, column: int) -> Value:
    if isinstance(expected, BoolType) and kind == "b":
        return bool(item)
    if isinstance(expected, StringType) and kind == "O":
        return text_of(item)
    if isinstance(expected, NumberType) and kind in "iuf":
        return saturated(int(item)) if expected.integer else float(item)
    raise ExpressionError("type", f"the tensor has no element that is {expected}", column)


def text_of(item: Any) -> str:
    """An element of a BYTES tensor as text; bytes that are not UTF-8 are replaced."""
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


def comparison(operator: str, left: Operand, right: Operand, column: int, unchecked: list[str]) -> Operand:
    """Each element compared with a value, or with the element of another tensor: a tensor of booleans."""
    kinds = {kind_of(left.type), kind_of(right.type)} - {""}
    if len(kinds) > 1 or "other" in kinds:
        raise CompileError(f"`{operator}` cannot compare {left.type} with {right.type}", column)
    if operator not in ("==", "!=") and kinds & {"boolean", "text"}:
        raise CompileError(f"`{operator}` cannot order {left.type}", column)
    shape = _common_shape(left, right, operator, column, unchecked)
    read_left, read_right, compare = left.run, right.run, _COMPARE[operator]

    def run(at: Evaluation) -> Value:
        first, second = _pair(at, read_left(at), read_right(at), column)
        if "O" in (first.dtype.kind, second.dtype.kind):
            first, second = _comparable_texts(operator, first, second, column)
            at.spend(sum([len(item) for item in (*first.flat, *second.flat)]), column)
        else:
            first, second = _comparable(operator, first, second, column)
        return np.asarray(compare(first, second), np.bool_)

    return Operand(TensorType("BOOL", shape), run, column)


def arithmetic(operator: str, left: Operand, right: Operand, column: int, unchecked: list[str]) -> Operand:
    """Arithmetic on each element, in doubles."""
    for operand in (left, right):
        if kind_of(operand.type) not in ("number", ""):
            raise CompileError(f"`{operator}` requires numbers, this is {operand.type}", operand.column)
    shape = _common_shape(left, right, operator, column, unchecked)
    read_left, read_right, calculate = left.run, right.run, _ARITHMETIC[operator]

    def run(at: Evaluation) -> Value:
        first, second = _pair(at, read_left(at), read_right(at), column)
        with np.errstate(all="ignore"):
            return np.asarray(calculate(doubles(first, column), doubles(second, column)))

    return Operand(TensorType("FP64", shape), run, column)


def _common_shape(
    left: Operand, right: Operand, operator: str, column: int, unchecked: list[str]
) -> tuple[int | None, ...] | None:
    """The shape of the result. Two tensors must have one shape; a single value has any."""
    shapes = [operand.type.shape for operand in (left, right) if isinstance(operand.type, TensorType)]
    unknown = [each.type for each in (left, right) if isinstance(each.type, TensorType) and each.type.datatype is None]
    unchecked += [f"column {column}: the datatype of {type_}" for type_ in unknown]
    if len(shapes) == 1:
        return shapes[0]
    first, second = shapes
    if first is None or second is None or None in (*first, *second):
        unchecked.append(f"column {column}: the operands of `{operator}` must have one shape")
    if first is None or second is None:
        return first or second
    same_rank = len(first) == len(second)
    if not same_rank or any(None not in pair and pair[0] != pair[1] for pair in zip(first, second, strict=True)):
        message = f"`{operator}` requires tensors of one shape, these are {left.type} and {right.type}"
        raise CompileError(message, column)
    return tuple(a if a is not None else b for a, b in zip(first, second, strict=True))


def _pair(at: Evaluation, left: Value, right: Value, column: int) -> tuple[Array, Array]:
    """Both sides as arrays of one shape, or a single value on one side. Raises `ExpressionError`."""
    arrays = isinstance(left, np.ndarray), isinstance(right, np.ndarray)
    first = left if arrays[0] else _of_scalar(left)
    second = right if arrays[1] else _of_scalar(right)
    if all(arrays) and first.shape != second.shape:
        message = f"the tensors have the shapes {list(first.shape)} and {list(second.shape)}"
        raise ExpressionError("shape", message, column)
    at.spend(max(first.size, second.size), column)
    return first, second


def _of_scalar(value: Value) -> Array:
    if isinstance(value, str):
        made = np.empty((), object)
        made[()] = value
        return made
    return np.asarray(
        value, np.bool_ if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float64
    )


def _comparable_texts(operator: str, first: Array, second: Array, column: int) -> tuple[Array, Array]:
    if first.dtype.kind != second.dtype.kind or operator not in ("==", "!="):
        raise ExpressionError("type", f"`{operator}` compares texts with texts only, and does not order them", column)
    return _texts(first), _texts(second)


def _texts(array: Array) -> Array:
    made = np.empty(array.size, object)
    made[:] = [text_of(item) for item in array.reshape(-1)]
    return made.reshape(array.shape)


def _comparable(operator: str, first: Array, second: Array, column: int) -> tuple[Array, Array]:
    kinds = first.dtype.kind, second.dtype.kind
    if "b" in kinds:
        if kinds != ("b", "b") or operator not in ("==", "!="):
            raise ExpressionError("type", f"`{operator}` compares a boolean with a number or orders booleans", column)
        return first, second
    if "f" not in kinds:
        return first, second
    first, second = doubles(first, column), doubles(second, column)
    if np.isnan(first).any() or np.isnan(second).any():
        raise not_a_number(column)
    return first, second


def doubles(array: Array, column: int) -> Array:
    """The elements as doubles. Raises `ExpressionError` for a tensor that has no numbers."""
    if array.dtype.kind not in "iuf":
        raise ExpressionError("type", "the tensor has no numbers", column)
    return array.astype(np.float64)


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
