"""The progress of a run: counts, rate, remaining time and cost."""

from collections.abc import Mapping
from typing import Any

from config.schema.money import Money, format_amount
from policies.limits.price import Price


class RunProgress:
    """Counts of a run that began at `started` (monotonic seconds)."""

    def __init__(self, total: int, answered: int, prices: Mapping[str, Price], started: float) -> None:
        self.total = total
        self.earlier = answered
        self.succeeded = 0
        self.failed = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cost: Money | None = None
        self._prices = prices
        self._started = started

    @property
    def ended(self) -> int:
        """Lines with a result, those of earlier runs included."""
        return self.earlier + self.succeeded + self.failed

    def add(self, model: Any, status: int, body: Any) -> None:
        """Count a result."""
        if status >= 400:
            self.failed += 1
            return
        self.succeeded += 1
        usage = body.get("usage") if isinstance(body, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        prompt = _count(usage, "prompt_tokens", "input_tokens")
        completion = _count(usage, "completion_tokens", "output_tokens")
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        if (price := self._prices.get(model)) is not None:
            cost = price.cost(prompt, completion)
            self.cost = cost if self.cost is None else Money(self.cost.picos + cost.picos, cost.currency)

    def rate(self, now: float) -> float:
        """Results each second."""
        return (self.succeeded + self.failed) / max(now - self._started, 1e-9)

    def remaining(self, now: float) -> float | None:
        """Seconds until the end at this rate; None before the first result."""
        rate = self.rate(now)
        return (self.total - self.ended) / rate if rate > 0 else None

    def text(self, now: float) -> str:
        """One line for a terminal."""
        parts = [f"{self.ended}/{self.total} lines", f"{self.failed} failed", f"{self.rate(now):.1f}/s"]
        if (left := self.remaining(now)) is not None and self.ended < self.total:
            minutes, seconds = divmod(int(left), 60)
            parts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
        parts.append(f"{self.prompt_tokens}+{self.completion_tokens} tokens")
        if self.cost is not None:
            parts.append(f"{format_amount(self.cost.picos)} {self.cost.currency}")
        return ", ".join(parts)


def _count(usage: Mapping[str, Any], *names: str) -> int:
    return next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)
