"""``price`` of a model: rates of tokens and requests, by the length of the prompt and from a date on."""

from collections.abc import Iterator
from typing import Self

from pydantic import Field, model_validator

from config.schema.money import Amount, Money, PerTokens
from config.schema.section import Section
from config.schema.text import Date
from config.schema.units import Percent


class TokenRatesConfig(Section):
    """Prices of the tokens of a request."""

    prompt: PerTokens | None = None
    """Price of prompt tokens."""
    completion: PerTokens | None = None
    """Price of completion tokens."""
    cached: PerTokens | None = None
    """Price of the prompt tokens that the server reports as read from its cache; that of ``prompt`` when absent."""
    reasoning: PerTokens | None = None
    """Price of the completion tokens that the server reports as reasoning; that of ``completion`` when absent."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.prompt is None) != (self.completion is None):
            raise ValueError("prompt and completion go together: write 0 for tokens without a price")
        if self.prompt is None and (self.cached is not None or self.reasoning is not None):
            raise ValueError("cached and reasoning tokens are parts of the others: give prompt and completion too")
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


class PriceConfig(PriceRowConfig):
    """Price of an answered request: of its tokens, of the request, or both."""

    changes: tuple[PriceChangeConfig, ...] = ()
    """Later prices. A request has the price of the time at which it begins, so that bills of the past do not change."""
    batch: Percent = 1.0
    """Share of this price that a line of a batch costs, such as ``50%``. Amounts are rounded to a millionth of a
    millionth of the currency."""

    @model_validator(mode="after")
    def _of_one_currency(self) -> Self:
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
                parts = (rates.prompt, rates.completion, rates.cached, rates.reasoning, getattr(rates, "request", None))
                yield from (part for part in parts if part is not None)
