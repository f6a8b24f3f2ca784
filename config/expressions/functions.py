"""The functions of the language. Each has one module-level builder that checks its arguments."""

from collections.abc import Callable
from dataclasses import dataclass

from config.expressions import reductions, texts
from config.expressions.arithmetic import saturated, truncated
from config.expressions.errors import CompileError, ExpressionError
from config.expressions.operand import Evaluation, Operand, folded
from config.expressions.scalars import as_number
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    ListType,
    NumberType,
    StringType,
    TensorType,
    Value,
)
from config.problem import closest

Build = Callable[[list[Operand], int, list[str]], Operand]
"""Arguments, column, and the list of conditions that only an evaluation can check. Raises `CompileError`."""


@dataclass(frozen=True, slots=True)
class FunctionRule:
    """A function: the way to write it, and its builder."""

    usage: str
    build: Build
    least: int
    most: int


def call(name: str, arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """A call of a function. Raises `CompileError`."""
    rule = FUNCTIONS.get(name)
    if rule is None:
        raise CompileError(f"there is no function `{name}`", column, closest(name, FUNCTIONS))
    if not rule.least <= len(arguments) <= rule.most:
        raise CompileError(f"write {rule.usage}; this call has {len(arguments)} arguments", column)
    if name == "has":
        return _has(arguments, column, unchecked)
    present = [argument.required(unchecked) for argument in arguments]
    return folded(rule.build(present, column, unchecked), *present)


def _has(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    (argument,) = arguments
    if not argument.absent:
        raise CompileError("this value is always present", column)
    run = argument.run

    def is_present(at: Evaluation) -> Value:
        try:
            return run(at) is not MISSING
        except ExpressionError as error:
            if error.fault != "type":
                raise
            return True  # it has another type than the file declares

    return Operand(BOOL, is_present, column)


def _length(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    (argument,) = arguments
    run, type_ = argument.run, argument.type
    if isinstance(type_, StringType | ListType):
        return Operand(NumberType(True, 0, float("inf")), lambda at: len(run(at)), column)
    if not isinstance(type_, TensorType) or type_.shape == ():
        message = f"len(x) requires a text, a list or a tensor with dimensions, this is {type_}"
        raise CompileError(message, argument.column)
    return reductions.rows(argument, column, unchecked)


def _smallest(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    return reductions.extreme("min", arguments, column, unchecked)


def _largest(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    return reductions.extreme("max", arguments, column, unchecked)


def _magnitude(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    argument = as_number(arguments[0], unchecked)
    assert isinstance(argument.type, NumberType)
    run, integer = argument.run, argument.type.integer
    type_ = NumberType(integer, 0, float("inf"))
    return Operand(type_, lambda at: saturated(abs(run(at))) if integer else abs(run(at)), column)


def _to_integer(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    argument = as_number(arguments[0], unchecked)
    run = argument.run
    return Operand(INT, lambda at: truncated(run(at), column), column)


def _to_float(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    argument = as_number(arguments[0], unchecked)
    run = argument.run
    return Operand(FLOAT, lambda at: float(run(at)), column)


def _is_nan(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    (argument,) = arguments
    if isinstance(argument.type, TensorType):
        return reductions.nan_elements(argument, column)
    run = as_number(argument, unchecked).run

    def is_nan(value: float) -> bool:
        return value != value

    return Operand(BOOL, lambda at: is_nan(run(at)), column)


FUNCTIONS: dict[str, FunctionRule] = {
    "abs": FunctionRule("abs(number)", _magnitude, 1, 1),
    "all": FunctionRule("all(booleans)", reductions.all_of, 1, 1),
    "any": FunctionRule("any(booleans)", reductions.any_of, 1, 1),
    "argmax": FunctionRule("argmax(numbers)", reductions.argmax, 1, 1),
    "contains": FunctionRule("contains(text, part) or contains(list, element)", texts.contains, 2, 2),
    "ends_with": FunctionRule("ends_with(text, part)", texts.ends_with, 2, 2),
    "float": FunctionRule("float(number)", _to_float, 1, 1),
    "has": FunctionRule("has(value)", _is_nan, 1, 1),
    "index": FunctionRule("index(list, element)", texts.index, 2, 2),
    "int": FunctionRule("int(number)", _to_integer, 1, 1),
    "is_nan": FunctionRule("is_nan(number)", _is_nan, 1, 1),
    "len": FunctionRule("len(text, list or tensor)", _length, 1, 1),
    "lower": FunctionRule("lower(text)", texts.lower, 1, 1),
    "matches": FunctionRule('matches(text, "pattern")', texts.matches, 2, 2),
    "max": FunctionRule("max(numbers) or max(first, second, …)", _largest, 1, 64),
    "mean": FunctionRule("mean(numbers)", reductions.mean, 1, 1),
    "min": FunctionRule("min(numbers) or min(first, second, …)", _smallest, 1, 64),
    "number": FunctionRule("number(text)", texts.number, 1, 1),
    "softmax": FunctionRule("softmax(tensor)", reductions.softmax, 1, 1),
    "starts_with": FunctionRule("starts_with(text, part)", texts.starts_with, 2, 2),
    "sum": FunctionRule("sum(numbers)", reductions.total, 1, 1),
}
