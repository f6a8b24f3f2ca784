"""An operand as another type, without loss or by a default."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from config.expressions.operand import Evaluation, Operand, folded
from config.expressions.types import (
    BOOL,
    FLOAT,
    MISSING,
    STRING,
    BoolType,
    CompileError,
    JsonType,
    ListType,
    NumberType,
    StringType,
    TensorType,
    Value,
    ValueType,
    joined,
    one_element,
    saturated,
)

REDUCE = "reduce it with any(…), all(…), max(…), min(…) or mean(…), or select an element with [0]"
_DATATYPES = {BoolType: ("BOOL",), StringType: ("BYTES",)}
_NOUNS = {BoolType: "true or false", NumberType: "a number", StringType: "a text"}
_PYTHON = {BoolType: bool, StringType: str}


def cast(operand: Operand, expected: BoolType | NumberType | StringType, unchecked: list[str]) -> Operand:
    """The operand as a boolean, a number or a text; an integer stays one. Raises `CompileError`."""
    if type(operand.type) is type(expected):
        return operand
    converted = as_type(operand, expected, unchecked)
    if converted is None:
        raise CompileError(f"{_NOUNS[type(expected)]} is required here, this is {operand.type}", operand.column)
    return converted


def as_type(operand: Operand, expected: ValueType, unchecked: list[str]) -> Operand | None:
    """The operand converted to a type without loss; None if the types do not match. Raises `CompileError`."""
    convert = _CONVERTERS.get((type(operand.type), type(expected)))
    return None if convert is None else convert(operand, expected, unchecked)


def _unchanged(operand: Operand, expected: ValueType, unchecked: list[str]) -> Operand:
    return operand


def _number(operand: Operand, expected: NumberType, unchecked: list[str]) -> Operand | None:
    assert isinstance(operand.type, NumberType)
    if not expected.integer:
        return widened(operand, expected)
    return operand if operand.type.integer else None


def _list(operand: Operand, expected: ListType, unchecked: list[str]) -> Operand | None:
    wider = joined(expected, operand.type)
    return operand if expected.element is None or wider == ListType(expected.element) else None


def _tensor(operand: Operand, expected: TensorType, unchecked: list[str]) -> Operand | None:
    return None if joined(operand.type, expected) is None else operand


def _only_element(
    operand: Operand, expected: BoolType | NumberType | StringType, unchecked: list[str]
) -> Operand | None:
    type_ = operand.type
    assert isinstance(type_, TensorType)
    datatypes = _DATATYPES.get(type(expected))
    if type_.datatype is not None:
        wrong_kind = type_.datatype not in datatypes if datatypes else type_.datatype in ("BOOL", "BYTES")
        if wrong_kind:
            return None
    single = one_element(type_)
    if single is False:
        raise CompileError(f"a single value is required here, this is {type_}: {REDUCE}", operand.column)
    if single is None or type_.datatype is None:
        unchecked.append(f"column {operand.column}: {type_} must have one element")
    from config.expressions import arrays

    run, column = operand.run, operand.column
    exact = expected
    if isinstance(expected, NumberType) and type_.datatype is not None and type_.datatype.lstrip("U").startswith("INT"):
        exact = replace(expected, integer=True)
    elif isinstance(expected, NumberType) and expected.integer:
        return None
    single_value = arrays.single(exact, column)
    return replace(operand, type=exact, run=lambda at: single_value(run(at)))


_CONVERTERS: dict[tuple[type, type], Callable[[Operand, Any, list[str]], Operand | None]] = {
    (NumberType, NumberType): _number,
    (ListType, ListType): _list,
    (TensorType, TensorType): _tensor,
    **{(kind, kind): _unchanged for kind in (BoolType, StringType)},
    **{(kind, JsonType): _unchanged for kind in (BoolType, NumberType, StringType, ListType, JsonType)},
    **{(TensorType, kind): _only_element for kind in (BoolType, NumberType, StringType)},
}
"""From a type to a type. Types without a converter do not match."""


def scalar(operand: Operand) -> Operand:
    """A tensor of one element as this element, if its datatype is known."""
    assert isinstance(operand.type, TensorType)
    names: dict[str | None, ValueType | None] = {"BOOL": BOOL, "BYTES": STRING, None: None}
    expected = names.get(operand.type.datatype, FLOAT)
    return operand if expected is None else as_type(operand, expected, []) or operand


def alike(first: Operand, second: Operand, unchecked: list[str]) -> tuple[Operand, Operand]:
    """Two operands, a tensor of one element converted to the type of the other. Raises `CompileError`."""
    if isinstance(first.type, TensorType) and not isinstance(second.type, TensorType):
        return as_type(first, second.type, unchecked) or first, second
    if isinstance(second.type, TensorType) and not isinstance(first.type, TensorType):
        return first, as_type(second, first.type, unchecked) or second
    return first, second


def widening(given: ValueType, expected: ValueType) -> Callable[[Value], Value] | None:
    """The function that converts a value of one type to a wider type; None if no value changes."""
    if isinstance(given, NumberType) and isinstance(expected, NumberType):
        return float if given.integer and not expected.integer else None
    if isinstance(given, ListType) and isinstance(expected, ListType) and given.element and expected.element:
        element = widening(given.element, expected.element)
        return None if element is None else lambda items: [element(item) for item in items]
    return None


def widened(operand: Operand, expected: ValueType) -> Operand:
    """The operand with a wider type, as `joined` determines it."""
    convert, run = widening(operand.type, expected), operand.run
    if convert is None:
        return replace(operand, type=expected)
    made = Operand(expected, lambda at: convert(run(at)), operand.column)
    return folded(made, operand)


def or_default(operand: Operand, fallback: Operand, column: int) -> Operand:
    """A JSON value as the type of its default, or the default if it is absent or has another type."""
    type_ = fallback.type
    if isinstance(type_, ListType) and type_.element is None:
        type_ = ListType(JsonType())
    elif isinstance(type_, NumberType):
        type_ = NumberType(type_.integer)
    elif isinstance(type_, ListType):
        type_ = ListType(_plain(type_.element))
    elif isinstance(type_, StringType):
        type_ = STRING
    if isinstance(type_, TensorType):
        raise CompileError("the default of a JSON value is not a tensor", fallback.column)
    run, instead, read = operand.run, fallback.run, reader_of(type_)

    def either(at: Evaluation) -> Value:
        value = run(at)
        if isinstance(value, list):
            at.spend(len(value), column)
        result = MISSING if value is None else read(value)
        return instead(at) if result is MISSING else result

    return Operand(type_, either, column)


def _plain(type_: ValueType | None) -> ValueType | None:
    """An element's type without the properties that only its literal determines."""
    if isinstance(type_, NumberType):
        return NumberType(type_.integer)
    return STRING if isinstance(type_, StringType) else type_


def reader_of(type_: ValueType | None) -> Callable[[Any], Value]:
    """The function that reads a value as a type that is no tensor, or returns `MISSING` for one of another type."""
    if isinstance(type_, ListType):
        return _list_reader(type_)
    if isinstance(type_, NumberType):
        return _read_integer if type_.integer else _read_float
    plain = _PYTHON.get(type(type_))
    return (lambda value: value) if plain is None else lambda value: value if isinstance(value, plain) else MISSING


def _read_integer(value: Any) -> Value:
    return saturated(value) if isinstance(value, int) and not isinstance(value, bool) else MISSING


def _read_float(value: Any) -> Value:
    number = value if isinstance(value, float) else _read_integer(value)
    return MISSING if number is MISSING else float(number)


def _list_reader(type_: ListType) -> Callable[[Any], Value]:
    read, empty = reader_of(type_.element), type_.element is None

    def read_list(value: Any) -> Value:
        if not isinstance(value, list | tuple) or type_.length not in (None, len(value)) or (empty and value):
            return MISSING
        items = [read(item) for item in value]
        return MISSING if any(item is MISSING for item in items) else items

    return read_list
