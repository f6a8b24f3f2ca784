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


def as_bool(operand: Operand, unchecked: list[str]) -> Operand:
    """The operand as a boolean. Raises `CompileError`."""
    converted = as_type(operand, BOOL, unchecked)
    if converted is None:
        raise CompileError(f"true or false is required here, this is {operand.type}", operand.column)
    return converted


def as_number(operand: Operand, unchecked: list[str]) -> Operand:
    """The operand as an integer or a float. Raises `CompileError`."""
    if isinstance(operand.type, NumberType):
        return operand
    converted = as_type(operand, FLOAT, unchecked)
    if converted is None:
        raise CompileError(f"a number is required here, this is {operand.type}", operand.column)
    return converted


def as_text(operand: Operand, unchecked: list[str]) -> Operand:
    """The operand as a text. Raises `CompileError`."""
    converted = as_type(operand, STRING, unchecked)
    if converted is None:
        raise CompileError(f"a text is required here, this is {operand.type}", operand.column)
    return converted


def as_type(operand: Operand, expected: ValueType, unchecked: list[str]) -> Operand | None:
    """The operand converted to a type without loss; None if the types do not match. Raises `CompileError`."""
    if isinstance(operand.type, TensorType):
        return _tensor_as(operand, expected, unchecked)
    if isinstance(expected, JsonType):
        return operand
    if isinstance(expected, NumberType) and isinstance(operand.type, NumberType):
        fits = operand.type.integer or not expected.integer
        return converted_to(operand, expected if not expected.integer else operand.type) if fits else None
    if isinstance(expected, StringType) and isinstance(operand.type, StringType):
        return operand
    if isinstance(expected, ListType) and isinstance(operand.type, ListType):
        wider = joined(expected, operand.type)
        return operand if expected.element is None or wider == ListType(expected.element) else None
    return operand if operand.type == expected else None


def _tensor_as(operand: Operand, expected: ValueType, unchecked: list[str]) -> Operand | None:
    """A tensor as a tensor, or as its only element."""
    type_ = operand.type
    assert isinstance(type_, TensorType)
    if isinstance(expected, TensorType):
        return operand if joined(type_, expected) is not None else None
    if isinstance(expected, ListType | JsonType):
        return None
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


def conversion(given: ValueType, expected: ValueType) -> Callable[[Value], Value] | None:
    """The function that converts a value of one type to a wider type; None if no value changes."""
    if isinstance(given, NumberType) and isinstance(expected, NumberType):
        return float if given.integer and not expected.integer else None
    if isinstance(given, ListType) and isinstance(expected, ListType) and given.element and expected.element:
        element = conversion(given.element, expected.element)
        return None if element is None else lambda items: [element(item) for item in items]
    return None


def converted_to(operand: Operand, expected: ValueType) -> Operand:
    """The operand with a wider type, as `joined` determines it."""
    convert, run = conversion(operand.type, expected), operand.run
    if convert is None:
        return replace(operand, type=expected)
    made = Operand(expected, lambda at: convert(run(at)), operand.column)
    return folded(made, operand)


def convert_json(operand: Operand, fallback: Operand, column: int) -> Operand:
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
    run, instead, read = operand.run, fallback.run, json_reader(type_)

    def either(at: Evaluation) -> Value:
        value = run(at)
        if isinstance(value, list):
            at.spend(len(value), column)
        result = read(value)
        return instead(at) if result is MISSING else result

    return Operand(type_, either, column)


def _plain(type_: ValueType | None) -> ValueType | None:
    """An element's type without the properties that only its literal determines."""
    if isinstance(type_, NumberType):
        return NumberType(type_.integer)
    return STRING if isinstance(type_, StringType) else type_


def json_reader(type_: ValueType | None) -> Callable[[Any], Value]:
    """The function that reads a JSON value as a type, or returns `MISSING`."""
    if isinstance(type_, BoolType):
        return lambda value: value if isinstance(value, bool) else MISSING
    if isinstance(type_, NumberType):
        return _json_integer if type_.integer else _json_float
    if isinstance(type_, StringType):
        return lambda value: value if isinstance(value, str) else MISSING
    if isinstance(type_, ListType):
        return _json_list(type_)
    return lambda value: MISSING if value is None else value


def _json_integer(value: Any) -> Value:
    return saturated(value) if isinstance(value, int) and not isinstance(value, bool) else MISSING


def _json_float(value: Any) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING
    return float(saturated(value)) if isinstance(value, int) else value


def _json_list(type_: ListType) -> Callable[[Any], Value]:
    if isinstance(type_.element, JsonType):
        return lambda value: value if isinstance(value, list) else MISSING
    read = json_reader(type_.element)

    def read_list(value: Any) -> Value:
        if not isinstance(value, list):
            return MISSING
        items = [read(item) for item in value]
        return MISSING if any(item is MISSING for item in items) else items

    return read_list
