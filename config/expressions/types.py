"""The types of values, the arithmetic of single numbers, and the errors of expressions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf, isnan, nan
from typing import Any, Final, Literal

Fault = Literal["missing", "type", "shape", "nan", "empty", "range", "size"]
"""The reason of a failed evaluation: a required value is absent, has another type or shape than declared, or is NaN; a
list or a tensor is empty; an index is beyond the end; values are larger than one evaluation may process."""


class CompileError(Exception):
    """An expression is invalid. `column` counts characters from 1; `suggestion` is a word to write instead."""

    def __init__(self, message: str, column: int, suggestion: str | None = None) -> None:
        super().__init__(message, column, suggestion)
        self.message = message
        self.column = column
        self.suggestion = suggestion

    def __str__(self) -> str:
        hint = f" (did you mean `{self.suggestion}`?)" if self.suggestion else ""
        return f"column {self.column}: {self.message}{hint}"


class ExpressionError(Exception):
    """A value has no result in an expression. `column` is the place of the operation, from 1."""

    def __init__(self, fault: Fault, message: str, column: int = 0) -> None:
        super().__init__(fault, message, column)
        self.fault = fault
        self.message = message
        self.column = column

    def __str__(self) -> str:
        return f"column {self.column}: {self.message}" if self.column else self.message


Path = tuple[str, ...]
"""The parts of a dotted name: ``("det", "boxes")`` for ``det.boxes``."""
MIN_INT, MAX_INT = -(1 << 63), (1 << 63) - 1


class Absent(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Absent.MISSING
"""The value of an optional variable that is not present."""

Value = Any
"""``bool``, ``int``, ``float``, ``str``, a list of these, a JSON value (with dicts), ``numpy.ndarray`` or `MISSING`."""


@dataclass(frozen=True, slots=True)
class BoolType:
    """True or false."""

    def __str__(self) -> str:
        return "a boolean"


@dataclass(frozen=True, slots=True)
class NumberType:
    """An integer of 64 bits or a double, within `low` and `high` as far as the checker determines them."""

    integer: bool
    low: float = -inf
    high: float = inf

    def __str__(self) -> str:
        return "an integer" if self.integer else "a number"


@dataclass(frozen=True, slots=True)
class StringType:
    """A text. With `choices` it is one of these words, and they may be written without quotes."""

    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"one of {', '.join(self.choices)}" if self.choices else "a text"


@dataclass(frozen=True, slots=True)
class JsonType:
    """A value of JSON whose type is not declared. Its members are optional."""

    def __str__(self) -> str:
        return "a JSON value"


@dataclass(frozen=True, slots=True)
class ListType:
    """A list. `element` is None for the empty list `[]`, `length` if it is not known."""

    element: "ValueType | None"
    length: int | None = None

    def __str__(self) -> str:
        return f"a list (each element {self.element})" if self.element else "an empty list"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor: a `numpy.ndarray` (BYTES: of objects, each `bytes`; BF16: as FP32).

    `datatype` is a name of the Open Inference Protocol, None if it is not known; a dimension or the whole `shape` is
    None if it is not known.
    """

    datatype: str | None = None
    shape: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        dims = (
            "any shape"
            if self.shape is None
            else f"shape [{', '.join('?' if d is None else str(d) for d in self.shape)}]"
        )
        return f"a tensor ({self.datatype or 'any datatype'}, {dims})"


ValueType = BoolType | NumberType | StringType | JsonType | ListType | TensorType
BOOL, INT, FLOAT = BoolType(), NumberType(integer=True), NumberType(integer=False)
STRING, JSON = StringType(), JsonType()


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable. An optional variable may be absent.

    Only an evaluation can check whether an `undeclared` variable is present.
    """

    type: ValueType
    optional: bool = False
    undeclared: bool = False


class Variables:
    """The variables of an expression by their paths.

    `open_paths` are prefixes below which every name is a variable of one declaration: a step whose outputs are not
    known when the file is loaded.
    """

    def __init__(self, declared: Mapping[Path, Variable], open_paths: Mapping[Path, Variable] | None = None) -> None:
        self._declared = dict(declared)
        self._open = dict(open_paths or {})
        prefixes = {path[:end] for path in self._declared for end in range(1, len(path))}
        self._namespaces = prefixes | {path[:end] for path in self._open for end in range(1, len(path) + 1)}

    def __iter__(self) -> Iterator[Path]:
        return iter(self._declared)

    def get(self, path: Path) -> Variable | None:
        """The variable with exactly this path."""
        variable = self._declared.get(path)
        return variable if variable is not None else self._open.get(path[:-1])

    def resolve(self, parts: Path) -> tuple[Path, Variable] | None:
        """The variable with the longest path that `parts` begin with."""
        for end in range(len(parts), 0, -1):
            variable = self.get(parts[:end])
            if variable is not None:
                return parts[:end], variable
        return None

    def is_namespace(self, path: Path) -> bool:
        """Whether variables begin with this path."""
        return path in self._namespaces

    def names_below(self, path: Path) -> list[str]:
        """The next parts of the variables that begin with a path."""
        depth = len(path)
        every = (*self._declared, *self._open)
        return list(dict.fromkeys(each[depth] for each in every if len(each) > depth and each[:depth] == path))


def one_element(type_: TensorType) -> bool | None:
    """Whether a tensor has exactly one element; None if its shape does not determine this."""
    if type_.shape is None:
        return None
    if any(size not in (1, None) for size in type_.shape):
        return False
    return None if None in type_.shape else True


def joined(first: ValueType, second: ValueType) -> ValueType | None:
    """The type of a value that has either type; None if there is none."""
    if isinstance(first, NumberType) and isinstance(second, NumberType):
        low, high = min(first.low, second.low), max(first.high, second.high)
        return NumberType(first.integer and second.integer, low, high)
    if isinstance(first, StringType) and isinstance(second, StringType):
        return first if first == second else STRING
    if isinstance(first, ListType) and isinstance(second, ListType):
        return _joined_lists(first, second)
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        return _joined_tensors(first, second)
    return first if first == second else None


def _joined_lists(first: ListType, second: ListType) -> ListType | None:
    length = first.length if first.length == second.length else None
    if first.element is None or second.element is None:
        return ListType(first.element or second.element, length)
    element = joined(first.element, second.element)
    return None if element is None else ListType(element, length)


def _joined_tensors(first: TensorType, second: TensorType) -> TensorType | None:
    if None not in (first.datatype, second.datatype) and first.datatype != second.datatype:
        return None
    datatype = first.datatype if first.datatype == second.datatype else None
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return TensorType(datatype)
    shape = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return TensorType(datatype, shape)


def saturated(value: int) -> int:
    """The nearest integer of 64 bits."""
    return MIN_INT if value < MIN_INT else MAX_INT if value > MAX_INT else value


def truncated(value: float, column: int) -> int:
    """A float without its fraction, as an integer of 64 bits. Raises `ExpressionError` for NaN."""
    if isnan(value):
        raise not_a_number(column)
    return saturated(int(value)) if abs(value) != inf else MAX_INT if value > 0 else MIN_INT


def divided(left: float, right: float) -> float:
    """The quotient of doubles as IEEE 754 defines it."""
    left, right = float(left), float(right)
    if right:
        return left / right
    if not left or isnan(left) or isnan(right):
        return nan
    return inf if (left > 0) == (str(right)[0] != "-") else -inf


def not_a_number(column: int) -> ExpressionError:
    """The error of a decision that depends on NaN."""
    return ExpressionError("nan", "the value is not a number (NaN)", column)
