"""The functions of the language. Each has one module-level builder that checks its arguments."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from config.expressions import reductions
from config.expressions.conversions import cast
from config.expressions.operand import Evaluation, Operand, folded
from config.expressions.operators import elements_equal, membership, single_item, weight
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    STRING,
    CompileError,
    ExpressionError,
    ListType,
    NumberType,
    StringType,
    TensorType,
    Value,
    saturated,
    truncated,
)
from config.installing import installing
from config.problem import closest

Search = Callable[[bytes], object]
MAX_PATTERN = 1024
PATTERN_WORK = 8
"""The work of matching one character, in units of `Evaluation.spend`."""
PATTERN_MEMORY = 1024 * 1024
"""Bytes of one compiled pattern and of the states that matching builds."""
_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?\s*", re.ASCII)


def contains(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`contains(text, part)` or `contains(list, element)`."""
    if isinstance(arguments[0].type, ListType):
        return membership(arguments[1], arguments[0], column, unchecked)
    return _test("contains", arguments, column, unchecked)


def starts_with(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`starts_with(text, part)`."""
    return _test("starts_with", arguments, column, unchecked)


def ends_with(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`ends_with(text, part)`."""
    return _test("ends_with", arguments, column, unchecked)


def _test(name: str, arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    test = {"contains": str.__contains__, "starts_with": str.startswith, "ends_with": str.endswith}[name]
    read, read_part = (cast(argument, STRING, unchecked).run for argument in arguments)

    def run(at: Evaluation) -> Value:
        text, part = read(at), read_part(at)
        at.spend(len(text) + len(part), column)
        return test(text, part)

    return Operand(BOOL, run, column)


def lower(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`lower(text)`."""
    read = cast(arguments[0], STRING, unchecked).run

    def run(at: Evaluation) -> Value:
        text = read(at)
        at.spend(len(text), column)
        return text.lower()

    return Operand(STRING, run, column)


def number(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`number(text)`: the decimal number that is the whole text, or no value."""
    read = cast(arguments[0], STRING, unchecked).run

    def run(at: Evaluation) -> Value:
        text = read(at)
        if len(text) > MAX_PATTERN or not _NUMBER.fullmatch(text):
            return MISSING
        value = float(text)
        return value if isfinite(value) else MISSING

    return Operand(FLOAT, run, column, "the text may not be a number")


def index(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`index(list, element)`: the position of the first equal element, or -1."""
    items, item = arguments[0], single_item(arguments[1], arguments[0], unchecked)
    membership(item, items, column, unchecked)  # checks the types
    read, read_item, equal = items.run, item.run, elements_equal(item, items, column)

    def run(at: Evaluation) -> Value:
        values, value = read(at), read_item(at)
        at.spend(len(values) * weight(value), column)
        return next((place for place, each in enumerate(values) if equal(value, each)), -1)

    return Operand(NumberType(True, -1, float("inf")), run, column)


def matches(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`matches(text, "pattern")`: whether the pattern occurs in the text.

    RE2 (https://github.com/google/re2/wiki/Syntax) matches in linear time; it has no backreferences or lookaround.
    """
    read, pattern = cast(arguments[0], STRING, unchecked).run, arguments[1]
    if not isinstance(pattern.type, StringType) or not isinstance(pattern.constant, str):
        raise CompileError("the pattern is a text in quotes", pattern.column)
    if len(pattern.constant) > MAX_PATTERN:
        raise CompileError(f"a pattern has at most {MAX_PATTERN} characters", pattern.column)
    search = _compiled(pattern.constant, pattern.column)

    def run(at: Evaluation) -> Value:
        text = read(at)
        at.spend(len(text) * PATTERN_WORK, column)
        try:
            data = text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            raise ExpressionError("type", "the text is not valid Unicode", column) from None
        return search(data) is not None

    return Operand(BOOL, run, column)


def _compiled(pattern: str, column: int) -> Search:
    try:
        import re2
    except ModuleNotFoundError:
        raise CompileError(f"matches(…) needs google-re2: {installing('pipelines')}", column) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    try:
        return re2.compile(pattern.encode(), options).search  # type: ignore[no-any-return]
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) and error.args else "not valid Unicode"
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise CompileError(f"the pattern is invalid: {reason}", column) from None


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
    argument = cast(arguments[0], FLOAT, unchecked)
    assert isinstance(argument.type, NumberType)
    run, integer = argument.run, argument.type.integer
    type_ = NumberType(integer, 0, float("inf"))
    return Operand(type_, lambda at: saturated(abs(run(at))) if integer else abs(run(at)), column)


def _to_integer(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    argument = cast(arguments[0], FLOAT, unchecked)
    run = argument.run
    return Operand(INT, lambda at: truncated(run(at), column), column)


def _to_float(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    argument = cast(arguments[0], FLOAT, unchecked)
    run = argument.run
    return Operand(FLOAT, lambda at: float(run(at)), column)


def _is_nan(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    (argument,) = arguments
    if isinstance(argument.type, TensorType):
        return reductions.nan_elements(argument, column)
    run = cast(argument, FLOAT, unchecked).run

    def is_nan(value: float) -> bool:
        return value != value

    return Operand(BOOL, lambda at: is_nan(run(at)), column)


FUNCTIONS: dict[str, FunctionRule] = {
    "abs": FunctionRule("abs(number)", _magnitude, 1, 1),
    "all": FunctionRule("all(booleans)", reductions.all_of, 1, 1),
    "any": FunctionRule("any(booleans)", reductions.any_of, 1, 1),
    "argmax": FunctionRule("argmax(numbers)", reductions.argmax, 1, 1),
    "contains": FunctionRule("contains(text, part) or contains(list, element)", contains, 2, 2),
    "ends_with": FunctionRule("ends_with(text, part)", ends_with, 2, 2),
    "float": FunctionRule("float(number)", _to_float, 1, 1),
    "has": FunctionRule("has(value)", _is_nan, 1, 1),
    "index": FunctionRule("index(list, element)", index, 2, 2),
    "int": FunctionRule("int(number)", _to_integer, 1, 1),
    "is_nan": FunctionRule("is_nan(number)", _is_nan, 1, 1),
    "len": FunctionRule("len(text, list or tensor)", _length, 1, 1),
    "lower": FunctionRule("lower(text)", lower, 1, 1),
    "matches": FunctionRule('matches(text, "pattern")', matches, 2, 2),
    "max": FunctionRule("max(numbers) or max(first, second, …)", _largest, 1, 64),
    "mean": FunctionRule("mean(numbers)", reductions.mean, 1, 1),
    "min": FunctionRule("min(numbers) or min(first, second, …)", _smallest, 1, 64),
    "number": FunctionRule("number(text)", number, 1, 1),
    "softmax": FunctionRule("softmax(tensor)", reductions.softmax, 1, 1),
    "starts_with": FunctionRule("starts_with(text, part)", starts_with, 2, 2),
    "sum": FunctionRule("sum(numbers)", reductions.total, 1, 1),
}
