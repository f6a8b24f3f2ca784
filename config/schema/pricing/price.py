"""``price`` of a model: rates of tokens and requests, by the length of the prompt and from a date on."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from config.schema.money import PICOS, Amount, Money, PerTokens
from config.schema.section import Section
from config.schema.text import Date
from config.schema.units import Count, Percent

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
    reasoning: PerTokens | None = None
    """Price of the completion tokens that the server reports as reasoning; that of ``completion`` when absent."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        parts = (self.cached, self.cache_write, self.reasoning)
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
                parts = (rates.prompt, rates.completion, rates.cached, rates.cache_write, rates.reasoning)
                yield from (part for part in (*parts, getattr(rates, "request", None)) if part is not None)
