"""Functions on texts, and on elements of lists."""

import re
from collections.abc import Callable
from math import isfinite

from config.expressions.errors import CompileError, ExpressionError
from config.expressions.operand import Evaluation, Operand
from config.expressions.operators import elements_equal, membership, single_item, weight
from config.expressions.scalars import as_text
from config.expressions.types import (
    BOOL,
    FLOAT,
    MISSING,
    STRING,
    ListType,
    NumberType,
    StringType,
    Value,
)

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
    read, read_part = (as_text(argument, unchecked).run for argument in arguments)

    def run(at: Evaluation) -> Value:
        text, part = read(at), read_part(at)
        at.spend(len(text) + len(part), column)
        return test(text, part)

    return Operand(BOOL, run, column)


def lower(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`lower(text)`."""
    read = as_text(arguments[0], unchecked).run

    def run(at: Evaluation) -> Value:
        text = read(at)
        at.spend(len(text), column)
        return text.lower()

    return Operand(STRING, run, column)


def number(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`number(text)`: the decimal number that is the whole text, or no value."""
    read = as_text(arguments[0], unchecked).run

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
    read, pattern = as_text(arguments[0], unchecked).run, arguments[1]
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
        raise CompileError("matches(…) needs google-re2: pip install 'headrace[pipelines]'", column) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    try:
        return re2.compile(pattern.encode(), options).search  # type: ignore[no-any-return]
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) and error.args else "not valid Unicode"
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise CompileError(f"the pattern is invalid: {reason}", column) from None
