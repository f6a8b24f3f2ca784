"""Headers that report the remaining limits of a request: OpenAI's, and similar ones for other units."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from config.schema.money import Money
from gateway.limits.allowance import Allowance
from policies.limits.amounts import RATED, Rated
from policies.limits.limits import TokenBucket

_NAMES = {
    unit: tuple(f"x-ratelimit-{kind}-{unit.replace('_', '-')}" for kind in ("limit", "remaining", "reset"))
    for unit in (*RATED, "spend")
}


def headers(allowances: Sequence[Allowance], now: float) -> list[tuple[str, str]]:
    """Headers for each unit, of the limit with the least remaining. A limit in shadow is not reported."""
    fields: list[tuple[str, str]] = []
    for unit, (left, bucket) in _least(allowances, now).items():
        limit, remaining, reset = _NAMES[unit]
        fields.append((limit, str(int(bucket.capacity))))
        fields.append((remaining, str(int(left))))
        fields.append((reset, _span(bucket.reset(now))))
    if any(allowance.spend is not None and not allowance.in_shadow for allowance in allowances):
        fields += _spend([allowance for allowance in allowances if not allowance.in_shadow], time.time())
    return fields


def anthropic_headers(allowances: Sequence[Allowance], now: float, utc: float) -> list[tuple[str, str]]:
    """The headers with Anthropic's names, for the units that Anthropic has. A reset is a point in time there."""
    fields: list[tuple[str, str]] = []
    for unit, (left, bucket) in _least(allowances, now).items():
        if unit in ("requests", "tokens"):
            whole = datetime.fromtimestamp(utc + bucket.reset(now), UTC)
            fields.append((f"anthropic-ratelimit-{unit}-limit", str(int(bucket.capacity))))
            fields.append((f"anthropic-ratelimit-{unit}-remaining", str(int(left))))
            fields.append((f"anthropic-ratelimit-{unit}-reset", whole.strftime("%Y-%m-%dT%H:%M:%SZ")))
    return fields


def _least(allowances: Sequence[Allowance], now: float) -> dict[Rated, tuple[float, TokenBucket]]:
    least: dict[Rated, tuple[float, TokenBucket]] = {}
    for allowance in allowances:
        if allowance.in_shadow:
            continue
        for unit, bucket in allowance.buckets.items():
            left = bucket.remaining(now)
            worst = least.get(unit)
            if worst is None or left < worst[0]:
                least[unit] = left, bucket
    return least


def _spend(allowances: Iterable[Allowance], utc: float) -> list[tuple[str, str]]:
    budgets = [(a.spend.remaining(utc), a.spend, a.config.spend) for a in allowances if a.spend and a.config.spend]
    left, budget, written = min(budgets, key=lambda entry: entry[0])
    limit, remaining, reset = _NAMES["spend"]
    return [(limit, str(written)), (remaining, str(Money(left, written.currency))), (reset, _span(budget.reset(utc)))]


def _span(seconds: float) -> str:
    """A duration as OpenAI writes it: `12ms`, `3.5s`, `6m0s`."""
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:.0f}s" if minutes else f"{rest:.1f}s"
