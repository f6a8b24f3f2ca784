"""What a request costs, in whole picos: exact, whatever is added up."""

from config.schema.config import PriceConfig
from config.schema.money import Money

OUTPUT_ESTIMATE = 256
"""Tokens of an answer whose request sets no bound, until the truth is known."""


def expected_output(max_tokens: int | None, n: int) -> int:
    """Tokens that the answers to one request may have, as far as it says."""
    return (OUTPUT_ESTIMATE if max_tokens is None else max_tokens) * n


class Price:
    """A model's price, ready to multiply."""

    __slots__ = ("_completion", "_prompt", "_request", "currency")

    def __init__(self, config: PriceConfig) -> None:
        self.currency = config.currency
        self._prompt = config.prompt.picos if config.prompt else 0
        self._completion = config.completion.picos if config.completion else 0
        self._request = config.request.picos if config.request else 0

    def cost(self, prompt_tokens: int, completion_tokens: int) -> Money:
        """Of one request that is answered."""
        picos = prompt_tokens * self._prompt + completion_tokens * self._completion + self._request
        return Money(picos, self.currency)

    def estimate(self, prompt_tokens: int, max_tokens: int | None, n: int) -> Money:
        """Of one request before it is answered."""
        return self.cost(prompt_tokens, expected_output(max_tokens, n))
