"""The budget of one request to a pipeline: tokens and money that its calls of models may use together."""

from __future__ import annotations

from typing import NamedTuple


class Use(NamedTuple):
    """The use of one call: tokens, and money in picos."""

    tokens: float = 0
    picos: int = 0

    def __add__(self, other: Use) -> Use:  # type: ignore[override]
        return Use(self.tokens + other.tokens, self.picos + other.picos)

    def __sub__(self, other: Use) -> Use:
        return Use(self.tokens - other.tokens, self.picos - other.picos)


class RequestBudget:
    """Reserves the estimate of each call before it, and settles the truth after it.

    A call whose estimate does not fit is refused. A call that used more than its estimate leaves less for the others.
    """

    __slots__ = ("pipeline", "reserved", "tokens", "picos", "used")

    def __init__(self, pipeline: str, tokens: float | None, picos: int | None) -> None:
        self.pipeline = pipeline
        self.tokens = tokens
        """The most tokens; None if they are unlimited."""
        self.picos = picos
        self.reserved = Use()
        """The estimates of the calls under way."""
        self.used = Use()
        """The use of the calls that have ended."""

    def exceeded(self, estimate: Use) -> bool:
        """Whether a call does not fit beside those that ended and those under way."""
        total = self.used + self.reserved + estimate
        too_long = self.tokens is not None and estimate.tokens > 0 and total.tokens > self.tokens
        return too_long or (self.picos is not None and estimate.picos > 0 and total.picos > self.picos)

    def reserve(self, estimate: Use) -> None:
        """Count the estimate of a call that starts."""
        self.reserved += estimate

    def settle(self, estimate: Use, truth: Use) -> None:
        """Replace the estimate of a call that has ended by its use."""
        self.reserved -= estimate
        self.used += truth
