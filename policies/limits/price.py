"""The cost of a request, in whole picos, so that sums are exact; the expected usage that only a response reports."""

from datetime import UTC, datetime
from typing import NamedTuple

from config.schema.money import Money, PriceConfig, PriceRowConfig, TokenRatesConfig

WEIGHT = 0.1
"""The weight of the latest answer in the moving mean."""


class DeviceTime:
    """Device time for each row: the moving mean of each model whose server reports its device time.

    Each operation has its own mean, because an explanation computes hundreds of predictions.
    """

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: dict[tuple[str, str], float] = {}

    def expected(self, model: str, operation: str, rows: int) -> float:
        """Expected milliseconds for a request with `rows` rows; 0 before the first report of this operation."""
        each = self._means.get((model, operation))
        return 0.0 if each is None else each * max(1, rows)

    def record(self, model: str, operation: str, rows: int, milliseconds: float) -> None:
        """Record the reported time of a request. The models are those of the configuration, and the operations those
        of the requests, so memory is bounded."""
        each = milliseconds / max(1, rows)
        mean = self._means.get((model, operation))
        self._means[model, operation] = each if mean is None else mean + WEIGHT * (each - mean)


OUTPUT_ESTIMATE = 256
"""Estimated tokens of an answer whose request sets no maximum."""


def expected_output(max_tokens: int | None, n: int) -> int:
    """The maximum of tokens in all answers to a request, or an estimate without `max_tokens`."""
    return (OUTPUT_ESTIMATE if max_tokens is None else max_tokens) * n


class _Rates(NamedTuple):
    """Picos of one token, for prompts of more than `above` tokens."""

    above: int
    prompt: int
    completion: int
    cached: int
    cache_write: int
    cache_hour: int
    reasoning: int


class PriceRow:
    """The price of requests that begin within one span of time."""

    __slots__ = ("_rates", "_request", "_tiers", "currency")

    def __init__(self, config: PriceRowConfig, currency: str, share: float) -> None:
        """`share` is the part of the configured price that a request costs."""
        self.currency = currency
        self._request = round(config.request.picos * share) if config.request else 0
        self._rates = _rates(config, 0, share)
        tiers = sorted(config.tiers, key=lambda tier: tier.above)
        self._tiers = tuple(_rates(tier, tier.above, share) for tier in tiers)

    def cost(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        cached: int = 0,
        reasoning: int = 0,
        cache_write: int = 0,
        cache_hour: int = 0,
    ) -> Money:
        """The cost of an answered request. Tokens that a cache had (`cached`) and those that are written to it
        (`cache_write`) are parts of the prompt, reasoning of the completion. `cache_hour` is the part of the written
        ones that the cache keeps for an hour."""
        rates = self._rates
        for tier in self._tiers:
            if prompt_tokens > tier.above:
                rates = tier
        picos = prompt_tokens * rates.prompt + completion_tokens * rates.completion + self._request
        if cached or reasoning or cache_write:
            cached = min(cached, prompt_tokens)
            picos += cached * (rates.cached - rates.prompt)
            written = min(cache_write, prompt_tokens - cached)
            picos += written * (rates.cache_write - rates.prompt)
            picos += min(cache_hour, written) * (rates.cache_hour - rates.cache_write)
            picos += min(reasoning, completion_tokens) * (rates.reasoning - rates.completion)
        return Money(picos, self.currency)

    def estimate(self, prompt_tokens: int, max_tokens: int | None, n: int) -> Money:
        """The estimated cost of a request before its answer."""
        return self.cost(prompt_tokens, expected_output(max_tokens, n))


class Price(PriceRow):
    """A model's price. It is that of the first span; `at` selects that of a time."""

    __slots__ = ("_changes", "of_batch")

    def __init__(self, config: PriceConfig, share: float = 1.0) -> None:
        """`share` is the part of the configured price that a request costs."""
        super().__init__(config, config.currency, share)
        changes = sorted(config.changes, key=lambda change: change.since)
        self._changes = tuple(
            (
                datetime.fromisoformat(change.since).replace(tzinfo=UTC).timestamp(),
                PriceRow(change, self.currency, share),
            )
            for change in changes
        )
        self.of_batch: Price = self if config.batch == share else Price(config, config.batch)
        """The price of the lines of batches."""

    def at(self, utc: float) -> PriceRow:
        """The price of a request that begins at a time, in Unix seconds."""
        row: PriceRow = self
        for since, change in self._changes:
            if utc >= since:
                row = change
        return row


def _rates(config: TokenRatesConfig, above: int, share: float) -> _Rates:
    prompt = config.prompt.picos if config.prompt else 0
    completion = config.completion.picos if config.completion else 0
    cached = config.cached.picos if config.cached else prompt
    cache_write = config.cache_write.picos if config.cache_write else prompt
    cache_hour = config.cache_write_hour.picos if config.cache_write_hour else cache_write
    reasoning = config.reasoning.picos if config.reasoning else completion
    rates = (prompt, completion, cached, cache_write, cache_hour, reasoning)
    return _Rates(above, *[round(picos * share) for picos in rates])
