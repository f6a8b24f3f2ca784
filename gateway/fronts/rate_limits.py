"""Headers that report the remaining limits of a request: OpenAI's, and similar ones for other units."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from config.schema.money import Money
from gateway.limits.allowance import Allowance
from policies.limits.limits import RATED, Rated, TokenBucket

_NAMES = {
    unit: tuple(f"x-ratelimit-{kind}-{unit.replace('_', '-')}" for kind in ("limit", "remaining", "reset"))
    for unit in (*RATED, "spend")
}


def headers(allowances: Sequence[Allowance], now: float) -> list[tuple[str, str]]:
    """Headers for each unit, of the limit with the least remaining. A limit in shadow is not reported."""
    fields: list[tuple[str, str]] = []
    for unit, bucket, whole in _least(allowances, now):
        limit, remaining, reset = _NAMES[unit]
        fields.append((limit, whole))
        fields.append((remaining, _left(bucket)))
        fields.append((reset, _span(bucket.seconds_to_full)))
    for allowance in allowances:
        if allowance.spend is not None and not allowance.in_shadow:
            return fields + _spend(allowances, time.time())
    return fields


def anthropic_headers(allowances: Sequence[Allowance], now: float, utc: float) -> list[tuple[str, str]]:
    """The headers with Anthropic's names, for the units that Anthropic has. A reset is a point in time there."""
    fields: list[tuple[str, str]] = []
    for unit, bucket, limit in _least(allowances, now):
        if unit in ("requests", "tokens"):
            whole = datetime.fromtimestamp(utc + bucket.seconds_to_full, UTC)
            fields.append((f"anthropic-ratelimit-{unit}-limit", limit))
            fields.append((f"anthropic-ratelimit-{unit}-remaining", _left(bucket)))
            fields.append((f"anthropic-ratelimit-{unit}-reset", whole.strftime("%Y-%m-%dT%H:%M:%SZ")))
    return fields


def _least(allowances: Sequence[Allowance], now: float) -> Iterable[tuple[Rated, TokenBucket, str]]:
    """Of each unit the rate with the least remaining, at its level of `now`; of several in debt, the first."""
    least: dict[Rated, tuple[Rated, TokenBucket, str]] = {}
    for allowance in allowances:
        for rate in allowance.reported:
            unit, bucket, _ = rate
            level = bucket.refill(now)
            worst = least.get(unit)
            if worst is None or (worst[1].level > 0 and level < worst[1].level):
                least[unit] = rate
    return least.values()


def _left(bucket: TokenBucket) -> str:
    """The whole units that can be taken from a bucket at its level; 0 in debt."""
    return str(int(bucket.level)) if bucket.level > 0 else "0"


def _spend(allowances: Iterable[Allowance], utc: float) -> list[tuple[str, str]]:
    shown = [a for a in allowances if not a.in_shadow]
    budgets = [(a.spend.remaining(utc), a.spend, a.config.spend) for a in shown if a.spend and a.config.spend]
    left, budget, written = min(budgets, key=lambda entry: entry[0])
    limit, remaining, reset = _NAMES["spend"]
    return [(limit, str(written)), (remaining, str(Money(left, written.currency))), (reset, _span(budget.reset(utc)))]


def _span(seconds: float) -> str:
    """A duration as OpenAI writes it: `12ms`, `3.5s`, `6m0s`."""
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:.0f}s" if minutes else f"{rest:.1f}s"
