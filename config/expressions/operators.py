"""Arithmetic, comparison, membership and logic on checked operands."""

import operator as python
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from config.expressions.conversions import as_type, cast
from config.expressions.operand import Evaluation, Operand, folded
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    STRING,
    BoolType,
    CompileError,
    ExpressionError,
    JsonType,
    ListType,
    NumberType,
    StringType,
    TensorType,
    Value,
    ValueType,
    divided,
    joined,
    not_a_number,
    saturated,
)
from config.problem import closest


def determined(operator: str, left: ValueType, right: ValueType) -> Value:
    """The result of a comparison for all values of these types; `MISSING` if it depends on the values."""
    if isinstance(left, NumberType) and isinstance(right, NumberType):
        return _ranges(operator, left, right)
    if isinstance(left, StringType) and isinstance(right, StringType) and operator in ("==", "!="):
        apart = left.choices and right.choices and not set(left.choices) & set(right.choices)
        return operator == "!=" if apart else MISSING
    return MISSING


def _ranges(operator: str, left: NumberType, right: NumberType) -> Value:
    if operator in (">", ">="):
        return _ranges("<" if operator == ">" else "<=", right, left)
    if operator == "<":
        return True if left.high < right.low else False if left.low >= right.high else MISSING
    if operator == "<=":
        return True if left.high <= right.low else False if left.low > right.high else MISSING
    apart = left.high < right.low or right.high < left.low
    return operator == "!=" if apart else MISSING


MAX_TEXT = 1024 * 1024
"""Characters of a joined text."""
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": python.eq, "!=": python.ne, "<": python.lt, "<=": python.le, ">": python.gt, ">=": python.ge,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": python.add, "-": python.sub, "*": python.mul, "/": divided}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def binary(operator: str, left: Operand, right: Operand, column: int, unchecked: list[str]) -> Operand:
    """`left operator right`. Raises `CompileError`."""
    if operator in COMPARE:
        made = _comparison(operator, left, right, column, unchecked)
    elif operator in ARITHMETIC:
        made = _arithmetic(operator, left, right, column, unchecked)
    else:
        made = membership(left, right, column, unchecked)
        made = made if operator == "in" else negation(made, column, unchecked)
    return folded(made, left, right)


def logical(operator: str, operands: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """Operands joined by `and` or `or`. The first decisive operand ends the evaluation."""
    operands = [cast(operand, BOOL, unchecked) for operand in operands]
    decisive = operator == "or"
    runs = [operand.run for operand in operands]

    def run(at: Evaluation) -> Value:
        for part in runs:
            if part(at) is decisive:
                return decisive
        return not decisive

    constants = [operand.constant for operand in operands]
    constant = decisive if decisive in constants else MISSING if MISSING in constants else not decisive
    return Operand(BOOL, run, column, constant=constant)


def negation(operand: Operand, column: int, unchecked: list[str]) -> Operand:
    """`not operand`."""
    operand = cast(operand, BOOL, unchecked)
    run = operand.run
    constant = MISSING if operand.constant is MISSING else not operand.constant
    return Operand(BOOL, lambda at: not run(at), column, constant=constant)


def minus(operand: Operand, column: int) -> Operand:
    """`-operand`, of a number or of each element of a tensor."""
    run, type_ = operand.run, operand.type
    if isinstance(type_, TensorType):
        zero = Operand(INT, lambda at: 0, column, constant=0)
        return _arithmetic("-", zero, operand, column, [])
    if not isinstance(type_, NumberType):
        raise CompileError(f"`-` requires a number, this is {type_}", column)
    negated = NumberType(type_.integer, -type_.high, -type_.low)
    if type_.integer:
        return folded(Operand(negated, lambda at: saturated(-run(at)), column), operand)
    return folded(Operand(negated, lambda at: -run(at), column), operand)


def weight(value: Value) -> int:
    """The work of one comparison with a value, in units of `Evaluation.spend`."""
    return 1 + len(value) if isinstance(value, str) else 1


def single_item(item: Operand, items: Operand, unchecked: list[str]) -> Operand:
    """A tensor of one element as a value of the type of a list's elements."""
    if not isinstance(item.type, TensorType) or not isinstance(items.type, ListType) or items.type.element is None:
        return item
    return as_type(item, items.type.element, unchecked) or item


def elements_equal(item: Operand, items: Operand, column: int) -> Callable[[Any, Any], bool]:
    """The equality of a value and an element of a list."""
    element = items.type.element if isinstance(items.type, ListType) else None
    return _equality(item.type, element, column)


def membership(item: Operand, items: Operand, column: int, unchecked: list[str]) -> Operand:
    """`item in items`. Raises `CompileError`."""
    item = single_item(item, items, unchecked)
    if not isinstance(items.type, ListType):
        hint = "; use contains(text, part)" if isinstance(items.type, StringType) else ""
        raise CompileError(f"`in` requires a list on its right side, this is {items.type}{hint}", items.column)
    if isinstance(item.type, ListType | TensorType | JsonType):
        raise CompileError(f"`in` requires a single value on its left side, this is {item.type}", item.column)
    if items.type.element is not None:
        _check_comparable("==", item, replace(items, type=items.type.element), column)
    read, read_items, equal = item.run, items.run, elements_equal(item, items, column)

    def run(at: Evaluation) -> Value:
        value, values = read(at), read_items(at)
        at.spend(len(values) * weight(value), column)
        return any(equal(value, each) for each in values)

    return Operand(BOOL, run, column)


def _comparison(operator: str, left: Operand, right: Operand, column: int, unchecked: list[str]) -> Operand:
    if isinstance(left.type, TensorType) or isinstance(right.type, TensorType):
        from config.expressions import arrays

        return arrays.comparison(operator, left, right, column, unchecked)
    if isinstance(left.type, ListType) is not isinstance(right.type, ListType):
        return _each_element(operator, left, right, column)
    _check_comparable(operator, left, right, column)
    read_left, read_right = left.run, right.run
    compare = _compare(operator, left.type, right.type, column)
    counted = isinstance(left.type, ListType | StringType)

    def run(at: Evaluation) -> Value:
        first, second = read_left(at), read_right(at)
        if counted:
            at.spend(len(first) + len(second), column)
        return compare(first, second)

    return Operand(BOOL, run, column, constant=determined(operator, left.type, right.type))


def _each_element(operator: str, left: Operand, right: Operand, column: int) -> Operand:
    """A list compared with one value: a list of booleans."""
    if isinstance(right.type, ListType):
        return _each_element(_MIRRORED.get(operator, operator), right, left, column)
    assert isinstance(left.type, ListType)
    if left.type.element is None:
        raise CompileError("an empty list has nothing to compare", left.column)
    _check_comparable(operator, replace(left, type=left.type.element), right, column)
    read, read_right = left.run, right.run
    compare = _compare(operator, left.type.element, right.type, column)

    def run(at: Evaluation) -> Value:
        items, value = read(at), read_right(at)
        at.spend(len(items), column)
        return [compare(item, value) for item in items]

    return Operand(ListType(BOOL, left.type.length), run, column)


def _compare(operator: str, left: ValueType, right: ValueType, column: int) -> Callable[[Any, Any], bool]:
    """The comparison of two values. A NaN raises `ExpressionError`."""
    if operator in ("==", "!="):
        equal, same = _equality(left, right, column), operator == "=="
        return lambda first, second: equal(first, second) is same
    compare = COMPARE[operator]
    if not _may_be_nan(left) and not _may_be_nan(right):
        return compare

    def run(first: Any, second: Any) -> bool:
        if first != first or second != second:
            raise not_a_number(column)
        return compare(first, second)

    return run


def _equality(left: ValueType | None, right: ValueType | None, column: int) -> Callable[[Any, Any], bool]:
    if isinstance(left, ListType) and isinstance(right, ListType):
        if left.element is None or right.element is None:
            return lambda first, second: len(first) == len(second)
        equal = _equality(left.element, right.element, column)
        return lambda first, second: (
            len(first) == len(second) and all(equal(a, b) for a, b in zip(first, second, strict=True))
        )
    json = isinstance(left, JsonType) or isinstance(right, JsonType)

    def run(first: Any, second: Any) -> bool:
        if json and isinstance(first, bool) is not isinstance(second, bool):
            return False
        if first != first or second != second:
            raise not_a_number(column)
        return bool(first == second)

    return run


def _may_be_nan(type_: ValueType) -> bool:
    if isinstance(type_, ListType):
        return type_.element is not None and _may_be_nan(type_.element)
    return isinstance(type_, JsonType) or (isinstance(type_, NumberType) and not type_.integer)


def _check_comparable(operator: str, left: Operand, right: Operand, column: int) -> None:
    """Raise `CompileError` if values of these types cannot be compared."""
    first, second = left.type, right.type
    equality = operator in ("==", "!=")
    json = [isinstance(type_, JsonType) for type_ in (first, second)]
    if any(json):
        other = second if json[0] else first
        if not equality or not isinstance(other, BoolType | NumberType | StringType):
            raise CompileError("a JSON value is compared after `default`, which determines its type", column)
        return
    if joined(first, second) is None:
        raise CompileError(f"`{operator}` cannot compare {first} with {second}", column)
    if not equality and not isinstance(first, NumberType | StringType):
        raise CompileError(f"`{operator}` cannot order {first}", column)
    if isinstance(first, StringType) and isinstance(second, StringType):
        _check_choices(first, right)
        _check_choices(second, left)


def _check_choices(type_: StringType, literal: Operand) -> None:
    """Raise `CompileError` for a literal that the other side never equals."""
    value = literal.constant
    if type_.choices and isinstance(value, str) and value not in type_.choices:
        message = f"{ascii(value)[:80]} is not one of {', '.join(type_.choices)}"
        raise CompileError(message, literal.column, closest(value, type_.choices))


def _arithmetic(operator: str, left: Operand, right: Operand, column: int, unchecked: list[str]) -> Operand:
    if isinstance(left.type, TensorType) or isinstance(right.type, TensorType):
        from config.expressions import arrays

        return arrays.arithmetic(operator, left, right, column, unchecked)
    if operator == "+" and isinstance(left.type, StringType) and isinstance(right.type, StringType):
        return _joined_texts(left, right, column)
    for operand in (left, right):
        if not isinstance(operand.type, NumberType):
            raise CompileError(f"`{operator}` requires numbers, this is {operand.type}", operand.column)
    left, right = cast(left, FLOAT, unchecked), cast(right, FLOAT, unchecked)
    first, second, calculate = left.run, right.run, ARITHMETIC[operator]
    assert isinstance(left.type, NumberType)
    assert isinstance(right.type, NumberType)
    if operator != "/" and left.type.integer and right.type.integer:
        return Operand(INT, lambda at: saturated(calculate(first(at), second(at))), column)
    return Operand(FLOAT, lambda at: calculate(float(first(at)), float(second(at))), column)


def _joined_texts(left: Operand, right: Operand, column: int) -> Operand:
    first, second = left.run, right.run

    def run(at: Evaluation) -> Value:
        head, tail = first(at), second(at)
        size = len(head) + len(tail)
        at.spend(size, column)
        if size > MAX_TEXT:
            raise ExpressionError("size", f"a text has at most {MAX_TEXT} characters", column)
        return head + tail

    return Operand(STRING, run, column)
