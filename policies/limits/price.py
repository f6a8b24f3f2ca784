"""The cost of a request, in whole picos, so that sums are exact."""

from config.schema.config import PriceConfig
from config.schema.money import Money

OUTPUT_ESTIMATE = 256
"""Estimated tokens of an answer whose request sets no maximum."""


def expected_output(max_tokens: int | None, n: int) -> int:
    """The maximum of tokens in all answers to a request, or an estimate without `max_tokens`."""
    return (OUTPUT_ESTIMATE if max_tokens is None else max_tokens) * n


class Price:
    """A model's price."""

    __slots__ = ("_completion", "_prompt", "_request", "currency", "of_batch")

    def __init__(self, config: PriceConfig, share: float = 1.0) -> None:
        """`share` is the part of the configured price that a request costs."""
        self.currency = config.currency
        self._prompt = round(config.prompt.picos * share) if config.prompt else 0
        self._completion = round(config.completion.picos * share) if config.completion else 0
        self._request = round(config.request.picos * share) if config.request else 0
        self.of_batch: Price = self if config.batch == share else Price(config, config.batch)
        """The price of the lines of batches."""

    def cost(self, prompt_tokens: int, completion_tokens: int) -> Money:
        """The cost of an answered request."""
        picos = prompt_tokens * self._prompt + completion_tokens * self._completion + self._request
        return Money(picos, self.currency)

    def estimate(self, prompt_tokens: int, max_tokens: int | None, n: int) -> Money:
        """The estimated cost of a request before its answer."""
        return self.cost(prompt_tokens, expected_output(max_tokens, n))
