"""Money in the file's notation: ``0.15 usd/1M`` (a price of tokens), ``0.001 usd`` (of a request), ``50 usd/month``.

The internal form is a whole number of picos, millionths of a millionth: a price with six decimals for a million tokens
is a whole number for one token, so that sums are exact without accumulated rounding.
"""

import re
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from config.schema.units import or_environment

PICOS = 10**12
"""Picos in one unit of the currency."""
Period = Literal["hour", "day", "month"]

_AMOUNT = r"(\d{1,12}(?:\.\d{1,12})?)\s*([A-Za-z]{3})"
_TOKENS = {"1k": 10**3, "1M": 10**6}
_TOKEN_PRICE = rf"{_AMOUNT}\s*/\s*({'|'.join(_TOKENS)})"
_BUDGET = rf"{_AMOUNT}\s*/\s*({'|'.join(get_args(Period))})"


class Money(NamedTuple):
    """An amount: of a request, or of one token."""

    picos: int
    currency: str

    def __str__(self) -> str:
        return f"{format_amount(self.picos)} {self.currency}"


class TokenPrice(Money):
    """The price of one token, written for a million tokens."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{format_amount(self.picos * 10**6)} {self.currency}/1M"


class MoneyBudget(NamedTuple):
    """The maximum spend in each hour, day or month of the calendar, in UTC."""

    picos: int
    currency: str
    period: Period

    def __str__(self) -> str:
        return f"{format_amount(self.picos)} {self.currency}/{self.period}"


def parse_token_price(value: object) -> TokenPrice:
    """``0.15 usd/1M`` → 150,000 picos for each token."""
    m = _match(_TOKEN_PRICE, value, "a price of tokens such as 0.15 usd/1M or 0.002 usd/1k")
    picos, rest = divmod(_picos(m[1]), _TOKENS[m[3]])
    if rest:
        raise ValueError("a price has at most 6 decimals for 1M tokens, 9 for 1k")
    return TokenPrice(picos, m[2].lower())


def parse_amount(value: object) -> Money:
    """``0.001 usd``."""
    m = _match(_AMOUNT, value, "an amount of money such as 0.001 usd")
    return Money(_picos(m[1]), m[2].lower())


def parse_budget(value: object) -> MoneyBudget:
    """``50 usd/month``."""
    m = _match(_BUDGET, value, "a budget such as 2 usd/hour, 5 usd/day or 50 usd/month")
    if (picos := _picos(m[1])) == 0:
        raise ValueError("a budget is more than 0")
    period: Period = next(p for p in get_args(Period) if p == m[3])
    return MoneyBudget(picos, m[2].lower(), period)


def currency_of(text: str) -> str | None:
    """The currency in a text that one of the parsers accepts; None for any other text."""
    m = re.match(_AMOUNT, text.strip())
    return m[2].lower() if m else None


def format_amount(picos: int) -> str:
    """Picos in whole units, exactly: ``0.00015``, ``50``."""
    whole, rest = divmod(abs(picos), PICOS)
    return f"{'-' if picos < 0 else ''}{whole}.{rest:012}".rstrip("0").rstrip(".")


def _picos(number: str) -> int:
    return int(Decimal(number).scaleb(12))


def _match(pattern: str, value: object, expected: str) -> re.Match[str]:
    if isinstance(value, str) and (m := re.fullmatch(pattern, value.strip())):
        return m
    raise ValueError(f"expected {expected}")


def _as_text(example: str, pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": or_environment(pattern), "examples": [example]})


_written = PlainSerializer(str, return_type=str, when_used="json")

PerTokens = Annotated[TokenPrice, PlainValidator(parse_token_price), _written, _as_text("0.15 usd/1M", _TOKEN_PRICE)]
Amount = Annotated[Money, PlainValidator(parse_amount), _written, _as_text("0.001 usd", _AMOUNT)]
Spend = Annotated[MoneyBudget, PlainValidator(parse_budget), _written, _as_text("50 usd/month", _BUDGET)]
