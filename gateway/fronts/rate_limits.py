"""What is left of a request's limits, as headers: those that OpenAI has, and the like for other units."""

import time
from collections.abc import Iterable, Sequence

from config.money import Money
from gateway.limits.allowance import Allowance
from policies.amounts import RATED, Rated
from policies.limits import TokenBucket

_NAMES = {
    unit: tuple(f"x-ratelimit-{what}-{unit.replace('_', '-')}" for what in ("limit", "remaining", "reset"))
    for unit in (*RATED, "spend")
}


def headers(allowances: Sequence[Allowance], now: float) -> list[tuple[str, str]]:
    """Of each unit, the limit with the least left. One in shadow refuses nothing, and is not told."""
    least: dict[Rated, tuple[float, TokenBucket]] = {}
    spends = False
    for allowance in allowances:
        if allowance.in_shadow:
            continue
        spends = spends or allowance.spend is not None
        for unit, bucket in allowance.buckets.items():
            left = bucket.remaining(now)
            known = least.get(unit)
            if known is None or left < known[0]:
                least[unit] = left, bucket
    found: list[tuple[str, str]] = []
    for unit, (left, bucket) in least.items():
        limit, remaining, reset = _NAMES[unit]
        found.append((limit, str(int(bucket.capacity))))
        found.append((remaining, str(int(left))))
        found.append((reset, _span(bucket.reset(now))))
    if spends:
        found += _spend([allowance for allowance in allowances if not allowance.in_shadow], time.time())
    return found


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
