"""Arithmetic on single numbers: integers of 64 bits that saturate, doubles as IEEE 754 defines them."""

from math import inf, isnan, nan

from config.expressions.errors import ExpressionError
from config.expressions.types import MAX_INT, MIN_INT


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
