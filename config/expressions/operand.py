"""A checked part of an expression: its type, and the function that computes its value."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from config.expressions.types import MISSING, CompileError, ExpressionError, Fault, Path, Value, ValueType

MAX_WORK = 4 * 1024 * 1024
"""Elements and characters that one evaluation may process: about 10 ms."""


class Evaluation:
    """One evaluation: the values of the variables, and the work that is left."""

    __slots__ = ("_left", "values")

    def __init__(self, values: "dict[Path, Value]", work: int = MAX_WORK) -> None:
        self.values = values
        self._left = work

    def spend(self, work: int, column: int) -> None:
        """Count elements or characters that an operation processes. Raises `ExpressionError`."""
        self._left -= work
        if self._left < 0:
            raise ExpressionError("size", "the values are too large for one evaluation", column)


Run = Callable[[Evaluation], Value]


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of an expression.

    `absent` describes why the value may be `MISSING`; `absent_fault` is the fault if it is, None if the part must have
    a default. `constant` is the value if it is the same for all variables, otherwise `MISSING`.
    """

    type: ValueType
    run: Run
    column: int
    absent: str = ""
    absent_fault: Fault | None = None
    constant: Value = MISSING

    def required(self, unchecked: list[str]) -> "Operand":
        """The same part with a value that is always present, or an `ExpressionError`. Raises `CompileError`."""
        if not self.absent:
            return self
        fault, run, column, message = self.absent_fault, self.run, self.column, self.absent
        if fault is None:
            raise CompileError(f"{message}: add a default, such as `… default 0`", column)
        unchecked.append(f"column {column}: {message}")

        def checked(at: Evaluation) -> Value:
            value = run(at)
            if value is MISSING:
                raise ExpressionError(fault, message, column)
            return value

        return replace(self, run=checked, absent="", absent_fault=None)


def constant(type_: ValueType, value: Value, column: int) -> Operand:
    """An operand with a value that does not depend on variables."""
    return Operand(type_, lambda at: value, column, constant=value)


def folded(operand: Operand, *parts: Operand) -> Operand:
    """The operand, evaluated now if all of its parts are constant."""
    if operand.constant is not MISSING or any(part.constant is MISSING for part in parts):
        return operand
    try:
        value = operand.run(Evaluation({}))
    except ExpressionError as error:
        raise CompileError(error.message, error.column or operand.column) from None
    return operand if value is MISSING else replace(operand, run=lambda at: value, constant=value)
