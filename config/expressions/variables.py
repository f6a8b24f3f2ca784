"""Reads variables, and checks that their values have the declared types."""

from collections.abc import Callable

from config.expressions.arithmetic import saturated
from config.expressions.errors import CompileError, ExpressionError
from config.expressions.operand import Evaluation, Run
from config.expressions.types import (
    MISSING,
    BoolType,
    JsonType,
    ListType,
    NumberType,
    Path,
    StringType,
    TensorType,
    Value,
    ValueType,
    Variable,
)

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
            message = f"`{name}` is a tensor, which needs {error.name}: pip install 'headrace[pipelines]'"
            raise CompileError(message, column) from None
        return arrays.checked(type_, name, column)
    if isinstance(type_, BoolType):
        return lambda value: value if isinstance(value, bool) else MISSING
    if isinstance(type_, NumberType):
        return _integer if type_.integer else _float
    if isinstance(type_, StringType):
        return lambda value: value if isinstance(value, str) else MISSING
    if isinstance(type_, ListType):
        return _list(type_, name, column)
    return lambda value: value


def _integer(value: Value) -> Value:
    return saturated(value) if isinstance(value, int) and not isinstance(value, bool) else MISSING


def _float(value: Value) -> Value:
    if isinstance(value, float):
        return float(value)
    integer = _integer(value)
    return integer if integer is MISSING else float(integer)


def _list(type_: ListType, name: str, column: int) -> Check:
    element = _check(type_.element, name, column) if type_.element else None

    def check(value: Value) -> Value:
        if not isinstance(value, list | tuple) or (type_.length is not None and len(value) != type_.length):
            return MISSING
        if element is None:
            return MISSING if value else []
        items = [element(item) for item in value]
        return MISSING if any(item is MISSING for item in items) else items

    return check
