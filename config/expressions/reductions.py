"""Functions that reduce a list or a tensor to one value."""

from math import fsum, inf

from config.expressions.conversions import cast, widened
from config.expressions.operand import Evaluation, Operand, Run
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    BoolType,
    CompileError,
    ExpressionError,
    ListType,
    NumberType,
    TensorType,
    Value,
    joined,
    not_a_number,
    saturated,
)

_EMPTY = "the list or tensor may be empty"


def any_of(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`any(booleans)`: whether an element is true; false for an empty list."""
    return _of_booleans("any", arguments[0], column)


def all_of(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`all(booleans)`: whether every element is true; true for an empty list."""
    return _of_booleans("all", arguments[0], column)


def _of_booleans(name: str, argument: Operand, column: int) -> Operand:
    read, reduce = argument.run, any if name == "any" else all
    if isinstance(argument.type, TensorType) and argument.type.datatype in ("BOOL", None):
        from config.expressions import arrays

        return arrays.of_booleans(name, argument, column)
    element = argument.type.element if isinstance(argument.type, ListType) else argument.type
    if not isinstance(argument.type, ListType) or not isinstance(element, BoolType | None):
        hint = f"{name}(x > 0.5)"
        raise CompileError(f"{name}(…) requires booleans, such as {hint}; this is {argument.type}", argument.column)

    def run(at: Evaluation) -> Value:
        items = read(at)
        at.spend(len(items), column)
        return reduce(items)

    return Operand(BOOL, run, column)


def extreme(name: str, arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`min` and `max` of several numbers, or of the elements of a list or a tensor."""
    if len(arguments) == 1:
        return _reduced(name, arguments[0], column)
    numbers = [cast(argument, FLOAT, unchecked) for argument in arguments]
    type_ = numbers[0].type
    for each in numbers[1:]:
        wider = joined(type_, each.type)
        assert wider is not None
        type_ = wider
    runs = [widened(each, type_).run for each in numbers]
    return Operand(type_, lambda at: _chosen(name, [run(at) for run in runs], column), column)


def _chosen(name: str, values: list[float], column: int) -> float:
    if any(value != value for value in values):
        raise not_a_number(column)
    return min(values) if name == "min" else max(values)


def total(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`sum(numbers)`. The sum of booleans is the number of true elements."""
    return _reduced("sum", arguments[0], column)


def mean(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`mean(numbers)`."""
    return _reduced("mean", arguments[0], column)


def argmax(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`argmax(numbers)`: the position of the first largest element; of a tensor in row-major order."""
    return _reduced("argmax", arguments[0], column)


def _reduced(name: str, argument: Operand, column: int) -> Operand:
    if isinstance(argument.type, TensorType):
        from config.expressions import arrays

        return arrays.reduced(name, argument, column)
    element = argument.type.element if isinstance(argument.type, ListType) else argument.type
    numeric = isinstance(element, NumberType) or element is None or (name == "sum" and isinstance(element, BoolType))
    if not isinstance(argument.type, ListType) or not numeric:
        raise CompileError(f"{name}(…) requires a list or tensor of numbers, this is {argument.type}", argument.column)
    integer = not isinstance(element, NumberType) or element.integer
    empty = "" if name == "sum" or argument.type.length else _EMPTY
    run = _reduction(name, argument.run, integer, column)
    type_ = NumberType(True, 0, inf) if name == "argmax" else INT if integer and name != "mean" else FLOAT
    return Operand(type_, run, column, empty, "empty" if empty else None)


def _reduction(name: str, read: Run, integer: bool, column: int) -> Run:
    def run(at: Evaluation) -> Value:
        items = read(at)
        at.spend(len(items), column)
        if name == "sum":
            return saturated(sum(items)) if integer else added(items)
        if not items:
            return MISSING
        if name == "mean":
            return added([float(item) for item in items]) / len(items)
        if name == "argmax":
            return items.index(_chosen("max", items, column))
        return _chosen(name, items, column)

    return run


def added(items: list[float]) -> float:
    """The exactly rounded sum of doubles; NaN or infinite as IEEE 754 defines it."""
    try:
        return fsum(items)
    except (OverflowError, ValueError):  # a sum beyond the largest double; infinities of both signs
        return float(sum(items))


def rows(argument: Operand, column: int, unchecked: list[str]) -> Operand:
    """`len(tensor)`: the size of the first dimension."""
    read = argument.run
    assert isinstance(argument.type, TensorType)
    if argument.type.shape is None:
        unchecked.append(f"column {column}: {argument.type} must have a dimension")

    def run(at: Evaluation) -> Value:
        array = read(at)
        if not array.ndim:
            raise ExpressionError("shape", "a tensor without dimensions has no length", column)
        return int(array.shape[0])

    return Operand(NumberType(True, 0, inf), run, column)


def nan_elements(argument: Operand, column: int) -> Operand:
    """`is_nan(tensor)`: for each element whether it is NaN."""
    from config.expressions import arrays

    return arrays.nan_elements(argument, column)


def softmax(arguments: list[Operand], column: int, unchecked: list[str]) -> Operand:
    """`softmax(tensor)` along the last dimension: logits as probabilities."""
    if not isinstance(arguments[0].type, TensorType) or arguments[0].type.shape == ():
        raise CompileError(f"softmax(…) requires a tensor with dimensions, this is {arguments[0].type}", column)
    from config.expressions import arrays

    return arrays.softmax(arguments[0], column, unchecked)
