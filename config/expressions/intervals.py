"""Comparisons whose result the ranges of their operands determine: conditions that never or always hold."""

from config.expressions.types import MISSING, NumberType, StringType, Value, ValueType


def determined(operator: str, left: ValueType, right: ValueType) -> Value:
    """The result of a comparison for all values of these types; `MISSING` if it depends on the values."""
    if isinstance(left, NumberType) and isinstance(right, NumberType):
        return _numbers(operator, left, right)
    if isinstance(left, StringType) and isinstance(right, StringType) and operator in ("==", "!="):
        apart = left.choices and right.choices and not set(left.choices) & set(right.choices)
        return operator == "!=" if apart else MISSING
    return MISSING


def _numbers(operator: str, left: NumberType, right: NumberType) -> Value:
    if operator in (">", ">="):
        return _numbers("<" if operator == ">" else "<=", right, left)
    if operator == "<":
        return True if left.high < right.low else False if left.low >= right.high else MISSING
    if operator == "<=":
        return True if left.high <= right.low else False if left.low > right.high else MISSING
    apart = left.high < right.low or right.high < left.low
    return operator == "!=" if apart else MISSING
