"""Money in the file's notation: ``0.15 usd/1M`` (a price of tokens), ``0.001 usd`` (of a request), ``50 usd/month``.

The internal form is a whole number of picos, millionths of a millionth: a price with six decimals for a million tokens
is a whole number for one token, so that sums are exact without accumulated rounding.

The ``price`` of a model has rates of tokens and requests, by the length of the prompt and from a date on.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple, Self, get_args

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from config.schema.section import Section
from config.schema.text import Date
from config.schema.units import Count, Percent, or_environment

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


MOST = 10**8
"""Largest price of a request or of a million tokens: sums of money stay within the range of the counters."""


class TokenRatesConfig(Section):
    """Prices of the tokens of a request."""

    prompt: PerTokens | None = None
    """Price of prompt tokens."""
    completion: PerTokens | None = None
    """Price of completion tokens."""
    cached: PerTokens | None = None
    """Price of the prompt tokens that the server reports as read from its cache; that of ``prompt`` when absent."""
    cache_write: PerTokens | None = None
    """Price of the prompt tokens that the server reports as written to its cache; that of ``prompt`` when absent."""
    cache_write_hour: PerTokens | None = None
    """Price of those of them that the cache keeps for an hour; that of ``cache_write`` when absent."""
    reasoning: PerTokens | None = None
    """Price of the completion tokens that the server reports as reasoning; that of ``completion`` when absent."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        parts = (self.cached, self.cache_write, self.cache_write_hour, self.reasoning)
        rates = (self.prompt, self.completion, *parts)
        if any(rate is not None and rate.picos * 10**6 > MOST * PICOS for rate in rates):
            raise ValueError(f"a price of tokens is at most {MOST} for 1M tokens: write it in another currency")
        if (self.prompt is None) != (self.completion is None):
            raise ValueError("prompt and completion go together: write 0 for tokens without a price")
        if self.prompt is None and any(rate is not None for rate in parts):
            raise ValueError("cached, written and reasoning tokens are parts of the others: give prompt and completion")
        return self


class PriceTierConfig(TokenRatesConfig):
    """Prices of all tokens of a request with a long prompt."""

    above: int = Field(ge=1)
    """The prompt has more tokens than this. The largest such number applies."""

    @model_validator(mode="after")
    def _priced(self) -> Self:
        if self.prompt is None:
            raise ValueError("names no price: give prompt and completion")
        return self


class PriceRowConfig(TokenRatesConfig):
    """Price of an answered request: of its tokens, of the request, or both."""

    request: Amount | None = None
    """Price of one answered request of any length."""
    tiers: tuple[PriceTierConfig, ...] = ()
    """Other prices of tokens for requests with long prompts."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.request is not None and self.request.picos > MOST * PICOS:
            raise ValueError(f"a price of a request is at most {MOST}: write it in another currency")
        if self.prompt is None and self.request is None:
            raise ValueError("names no price: give prompt and completion, or request")
        if self.prompt is None and self.tiers:
            raise ValueError("tiers are prices of tokens: give prompt and completion too")
        if len({tier.above for tier in self.tiers}) < len(self.tiers):
            raise ValueError("two tiers begin above the same number of tokens")
        return self


class PriceChangeConfig(PriceRowConfig):
    """The price of requests that begin from a date on. It replaces all parts of the earlier price."""

    since: Date
    """The first day, which begins at 00:00 UTC."""


class VolumeConfig(Section):
    """A discount on the tokens of a tenant in a month beyond a number."""

    above: Count
    """Prompt and completion tokens of one tenant in one calendar month (UTC)."""
    discount: Annotated[Percent, Field(gt=0, le=1)]
    """Share of the amount that tokens beyond this number do not cost, up to the next such number."""


class PriceConfig(PriceRowConfig):
    """Price of an answered request: of its tokens, of the request, or both."""

    changes: tuple[PriceChangeConfig, ...] = ()
    """Later prices. A request has the price of the time at which it begins, so that bills of the past do not change."""
    batch: Percent = 1.0
    """Share of this price that a line of a batch costs, such as ``50%``. Amounts are rounded to a millionth of a
    millionth of the currency."""

    volume: tuple[VolumeConfig, ...] = ()
    """Discounts by the tokens of a month. Invoices have them; budgets and the costs of requests do not."""

    @model_validator(mode="after")
    def _of_one_currency(self) -> Self:
        if len({volume.above for volume in self.volume}) < len(self.volume):
            raise ValueError("two discounts begin above the same number of tokens")
        if len({part.currency for part in self._parts()}) > 1:
            raise ValueError("a price has one currency")
        if len({change.since for change in self.changes}) < len(self.changes):
            raise ValueError("two changes are since the same day")
        return self

    @property
    def currency(self) -> str:
        """The currency, which is the same in the whole file."""
        return next(self._parts()).currency

    def _parts(self) -> Iterator[Money]:
        for row in (self, *self.changes):
            for rates in (row, *row.tiers):
                tokens = (rates.prompt, rates.completion, rates.cached, rates.reasoning)
                parts = (*tokens, rates.cache_write, rates.cache_write_hour, getattr(rates, "request", None))
                yield from (part for part in parts if part is not None)
