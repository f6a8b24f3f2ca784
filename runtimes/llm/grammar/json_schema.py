"""JSON schemas as grammars: the text that llguidance compiles, with its options.

llguidance reads numbers as 64-bit floats, which hold all integers to 2^53. A free integer of an answer has as many
digits as the model writes. Only a `const`, an `enum` or a bound is rounded.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from runtimes.llm.grammar.constraint import Grammar, GrammarInvalid

_INT64 = 2**63
_LEAST = -(_INT64 - 1024)
"""llguidance fails for a lower `minimum`. This is the next 64-bit float."""
_VALUES = ("const", "enum")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value maps names to schemas."""
_NOTES = ("default", "examples", "enumNames")


class Rounded(ValueError):
    """A keyword has a number that would be rounded."""

    def __init__(self, keyword: str, number: int) -> None:
        text = str(number) if abs(number) < 10**40 else "a number of more than 40 digits"
        super().__init__(f"`{keyword}` has {text}, which no 64-bit float is")


def exact(schema: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    """The schema with all numbers in their original spelling.

    A keyword with a number that would be rounded is skipped, or with `strict` raises Rounded. Bounds at the ends of
    64-bit integers, or beyond them, become the nearest bounds inside.
    """
    if not any(True for _ in _rounded(schema)):
        return schema
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    for part, keyword, number in list(_rounded(copy)):
        if keyword.casefold().endswith("minimum") and number <= _LEAST:
            part[keyword] = _LEAST
        elif keyword.casefold().endswith("maximum") and number >= _INT64 - 1:
            part[keyword] = -_LEAST if (keyword, number) == ("exclusiveMaximum", _INT64 - 1) else _INT64
        elif strict:
            raise Rounded(keyword, number)
        else:
            del part[keyword]
    return copy


def _rounded(schema: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, int]]:
    """Parts of the schema, keywords in them, and the first number of each that would be rounded."""
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            for keyword, value in part.items():
                if keyword in _BOUNDS and _is_rounded_bound(keyword, value):
                    yield part, keyword, value
                elif keyword in _VALUES and (number := _first_rounded(value)) is not None:
                    yield part, keyword, number
                elif keyword in _NAMED and isinstance(value, dict):
                    left += value.values()
                elif keyword not in (*_VALUES, *_NOTES) and isinstance(value, dict | list):
                    left.append(value)


def _first_rounded(value: Any) -> int | None:
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += item.values()
        elif isinstance(item, list):
            left += item
        elif _is_rounded(item):
            return int(item)
    return None


def _is_rounded_bound(keyword: str, number: Any) -> bool:
    if _is_rounded(number):
        return True
    # llguidance adds 1 to an exclusive bound, or subtracts it, as a float.
    least, most = (-(2**53), 2**53) if keyword.startswith("exclusive") else (_LEAST - 1, _INT64 - 1)
    return isinstance(number, int) and not least < number < most


def _is_rounded(number: Any) -> bool:
    if isinstance(number, bool) or not isinstance(number, int):
        return False
    try:
        nearest = float(number)
    except OverflowError:
        return True
    return number != (int(nearest) if abs(number) < _INT64 else int(Decimal(repr(nearest))))


# Between JSON's tokens: nothing, a space, or a new line with what it is indented by. Without a bound a model can go
# on with spaces until its answer is cut.
WHITESPACE = r"[ \t]?|\n[ \t]{0,40}"
_encode = msgspec.json.Encoder().encode


def of_schema(schema: dict[str, Any], param: str, *, strict: bool = False, whitespace: str = WHITESPACE) -> Grammar:
    """The JSON texts of a schema."""
    return Grammar("json_schema", json_text(schema, param, strict=strict, whitespace=whitespace), param)


def json_text(schema: dict[str, Any], param: str, *, strict: bool, whitespace: str = WHITESPACE) -> str:
    """A schema with how it is to be read, as `%json` in Lark takes it too. Raises GrammarInvalid."""
    try:
        schema = exact(schema, strict=strict)
    except Rounded as error:
        raise GrammarInvalid(f"`{param}` cannot be enforced: {error}.", param=param) from None
    reading: dict[str, Any] = {"lenient": not strict}
    reading |= {"whitespace_pattern": whitespace} if whitespace else {"whitespace_flexible": False}
    return _encode({**schema, "x-guidance": reading}).decode()
