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

    __slots__ = ("_completion", "_prompt", "_request", "currency")

    def __init__(self, config: PriceConfig) -> None:
        self.currency = config.currency
        self._prompt = config.prompt.picos if config.prompt else 0
        self._completion = config.completion.picos if config.completion else 0
        self._request = config.request.picos if config.request else 0

    def cost(self, prompt_tokens: int, completion_tokens: int) -> Money:
        """The cost of an answered request."""
        picos = prompt_tokens * self._prompt + completion_tokens * self._completion + self._request
        return Money(picos, self.currency)

    def estimate(self, prompt_tokens: int, max_tokens: int | None, n: int) -> Money:
        """The estimated cost of a request before its answer."""
        return self.cost(prompt_tokens, expected_output(max_tokens, n))
