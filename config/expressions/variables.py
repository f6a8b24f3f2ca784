"""Variables, which have the declared types; elements of lists and tensors; members of JSON values."""

from collections.abc import Callable

from config.expressions.conversions import reader_of, scalar
from config.expressions.operand import Evaluation, Operand, Run
from config.expressions.types import (
    JSON,
    MISSING,
    CompileError,
    ExpressionError,
    JsonType,
    ListType,
    NumberType,
    Path,
    TensorType,
    Value,
    ValueType,
    Variable,
)
from config.installing import installing

Check = Callable[[Value], Value]
"""Returns the value as the language represents it, or `MISSING` if it has another type."""


def reader(path: Path, variable: Variable, column: int) -> Run:
    """The function that reads a variable. Raises `CompileError` if its type needs a package that is not installed."""
    name, type_, optional = ".".join(path), variable.type, variable.optional or variable.undeclared
    check = _check(type_, name, column)
    counted = isinstance(type_, ListType)
    accepts_null = isinstance(type_, JsonType) and not optional

    def read(at: Evaluation) -> Value:
        value = at.values.get(path, MISSING)
        if value is MISSING or (value is None and not accepts_null):
            if optional:
                return MISSING
            raise ExpressionError("missing", f"`{name}` has no value", column)
        if counted and isinstance(value, list | tuple):
            at.spend(len(value), column)
        result = check(value)
        if result is MISSING:
            raise ExpressionError("type", f"`{name}` is not {type_}, as declared", column)
        return result

    return read


def _check(type_: ValueType, name: str, column: int) -> Check:
    if isinstance(type_, TensorType):
        try:
            from config.expressions import arrays
        except ModuleNotFoundError as error:
            message = f"`{name}` is a tensor, which needs {error.name}: {installing('pipelines')}"
            raise CompileError(message, column) from None
        return arrays.checked(type_, name, column)
    return reader_of(type_)


def member(base: Operand, name: str, column: int) -> Operand:
    """`base.name` of a JSON value. Raises `CompileError`."""
    if not isinstance(base.type, JsonType):
        raise CompileError(f"`.{name}`: only JSON values have members, this is {base.type}", column)
    run = base.run

    def read(at: Evaluation) -> Value:
        value = run(at)
        result = value.get(name) if isinstance(value, dict) else None
        return MISSING if result is None else result

    return Operand(JSON, read, base.column, f"`{name}` may be absent")


def element(base: Operand, index: Operand, column: int, unchecked: list[str]) -> Operand:
    """`base[index]`. Negative indexes count from the end. Raises `CompileError`."""
    if not isinstance(index.type, NumberType) or not index.type.integer:
        raise CompileError(f"an index is an integer, this is {index.type}", index.column)
    if isinstance(base.type, JsonType):
        return _from_list(base, index, Operand(JSON, base.run, column, "the element may be absent"))
    if base.absent_fault is None:  # an element that may be absent has elements that may be absent
        base = base.required(unchecked)
    if isinstance(base.type, ListType) and base.type.element is not None:
        certain = _within(index, base.type.length) and not base.absent
        beyond = "" if certain else "the index may be beyond the end of the list"
        return _from_list(base, index, Operand(base.type.element, base.run, column, beyond, "range"))
    if isinstance(base.type, TensorType):
        return _of_tensor(base, index, column)
    raise CompileError(f"only lists and tensors have elements, this is {base.type}", column)


def _within(index: Operand, length: int | None) -> bool:
    """Whether an element certainly exists."""
    return length is not None and index.constant is not MISSING and -length <= index.constant < length


def _from_list(base: Operand, index: Operand, made: Operand) -> Operand:
    read_base, read_index = base.run, index.run

    def read(at: Evaluation) -> Value:
        items, place = read_base(at), read_index(at)
        if not isinstance(items, list) or not -len(items) <= place < len(items):
            return MISSING
        item = items[place]
        return MISSING if item is None else item

    return Operand(made.type, read, made.column, made.absent, made.absent_fault if made.absent else None)


def _of_tensor(base: Operand, index: Operand, column: int) -> Operand:
    assert isinstance(base.type, TensorType)
    shape = base.type.shape
    if shape == ():
        raise CompileError("a tensor without dimensions has no elements to select", column)
    beyond = "" if shape and _within(index, shape[0]) else "the index may be beyond the end of the tensor"
    beyond = beyond or base.absent
    read_base, read_index = base.run, index.run

    def read(at: Evaluation) -> Value:
        array, place = read_base(at), read_index(at)
        if array is MISSING:
            return MISSING
        if not array.ndim:
            raise ExpressionError("shape", "a tensor without dimensions has no elements to select", column)
        return array[place, ...] if -array.shape[0] <= place < array.shape[0] else MISSING

    type_ = TensorType(base.type.datatype, None if shape is None else shape[1:])
    made = Operand(type_, read, column, beyond, "range" if beyond else None)
    return scalar(made) if type_.shape == () else made
