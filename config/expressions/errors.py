"""Errors of expressions: found when they are compiled, or caused by a value."""

from typing import Literal

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
