"""What one subject of one limit may still use: the whole tenant, one key, one model or one end user."""

from __future__ import annotations

import sys
from typing import Literal, NamedTuple

from config.limits import LimitsConfig, Per
from config.money import PICOS
from config.units import RateLimit
from policies.budget import CalendarBudget
from policies.limits import Concurrency, TokenBucket

Rated = Literal["requests", "tokens"]
Unit = Literal["requests", "tokens", "spend", "concurrency"]
CONCURRENCY_RETRY_AFTER = 1.0


class Refusal(NamedTuple):
    """Which unit is not to be had, and for how many seconds."""

    wait: float
    unit: Unit
    allowance: Allowance


class Shadowed(NamedTuple):
    """A limit in shadow that would have refused."""

    unit: Unit
    per: Per


class Hold:
    """What one request has taken of one allowance."""

    __slots__ = ("allowance", "picos", "tokens", "window")

    def __init__(self, allowance: Allowance, tokens: float, picos: int, window: int) -> None:
        self.allowance = allowance
        self.tokens = tokens
        self.picos = picos
        self.window = window

    def settle(self, tokens: float, picos: int, now: float) -> None:
        """Charge the truth instead of the estimates. Once."""
        allowance = self.allowance
        allowance.concurrency.release()
        if (bucket := allowance.tokens) is not None:
            bucket.settle(self.tokens, tokens, now)
        if (budget := allowance.spend) is not None:
            budget.settle(self.picos, picos, self.window)

    def undo(self, now: float) -> None:
        """As if it had never been: another limit refused the request."""
        if (bucket := self.allowance.requests) is not None:
            bucket.settle(1, 0, now)
        self.settle(0, 0, now)


class Allowance:
    """Buckets, a budget and a number at once; None where there is no limit. Outlives reloads."""

    __slots__ = ("concurrency", "config", "in_shadow", "requests", "spend", "tokens")

    def __init__(self, config: LimitsConfig, now: float, utc: float) -> None:
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None
        self.spend: CalendarBudget | None = None
        self.concurrency = Concurrency(sys.maxsize)
        self.configure(config, now, utc)

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        """A new limit: rates keep the share that was used, budgets what was spent."""
        self.config = config
        self.in_shadow = config.enforce == "shadow"
        self.requests = _bucket(self.requests, config.requests, now)
        self.tokens = _bucket(self.tokens, config.tokens, now)
        self.spend = _budget(self.spend, config, utc)
        self.concurrency.limit = config.concurrency or sys.maxsize

    @property
    def buckets(self) -> dict[Rated, TokenBucket]:
        """Those that there are, by unit."""
        both: tuple[tuple[Rated, TokenBucket | None], ...] = (("requests", self.requests), ("tokens", self.tokens))
        return {unit: bucket for unit, bucket in both if bucket is not None}

    def take(self, tokens: int, picos: int, now: float, utc: float) -> Hold | None:
        """A place, a request, and the estimated `tokens` and `picos`; None when one is not to be had.

        Nothing is taken then, and `refusals` says which.
        """
        if not self.concurrency.take():
            return None
        requests, bucket, budget = self.requests, self.tokens, self.spend
        if requests is not None and requests.take(1, now):
            self.concurrency.release()
            return None
        estimate, cost, window = 0.0, 0, 0
        if bucket is not None:
            estimate = bucket.clamp(tokens)
            if bucket.take(estimate, now):
                self._put_back(0.0, now)
                return None
        if budget is not None:
            cost = budget.clamp(picos)
            if budget.take(cost, utc):
                self._put_back(estimate, now)
                return None
            window = budget.window
        return Hold(self, estimate, cost, window)

    def _put_back(self, tokens: float, now: float) -> None:
        self.concurrency.release()
        if self.requests is not None:
            self.requests.settle(1, 0, now)
        if tokens and self.tokens is not None:
            self.tokens.settle(tokens, 0, now)

    def refusals(self, tokens: int, picos: int, now: float, utc: float) -> list[Refusal]:
        """Each unit that is not to be had; takes nothing."""
        found: list[Refusal] = []
        concurrency = self.concurrency
        if concurrency.in_flight >= concurrency.limit:
            found.append(Refusal(CONCURRENCY_RETRY_AFTER, "concurrency", self))
        if (bucket := self.requests) is not None and (wait := bucket.wait(1, now)):
            found.append(Refusal(wait, "requests", self))
        if (bucket := self.tokens) is not None and (wait := bucket.wait(bucket.clamp(tokens), now)):
            found.append(Refusal(wait, "tokens", self))
        if (budget := self.spend) is not None and (wait := budget.wait(budget.clamp(picos), utc)):
            found.append(Refusal(wait, "spend", self))
        return found

    def remaining(self, now: float, utc: float) -> dict[str, float]:
        """What can be taken now, by unit; money in whole units."""
        left: dict[str, float] = {unit: bucket.remaining(now) for unit, bucket in self.buckets.items()}
        if self.spend is not None:
            left["spend"] = self.spend.remaining(utc) / PICOS
        if self.config.concurrency is not None:
            left["concurrency"] = max(0, self.concurrency.limit - self.concurrency.in_flight)
        return left

    def is_idle(self, now: float, utc: float) -> bool:
        """Nothing in flight and nothing owed: a new one would grant the same."""
        return (
            self.concurrency.in_flight == 0
            and all(bucket.reset(now) <= 0 for bucket in self.buckets.values())
            and (self.spend is None or self.spend.remaining(utc) == self.spend.amount)
        )


def _bucket(old: TokenBucket | None, rate: RateLimit | None, now: float) -> TokenBucket | None:
    if rate is None:
        return None
    if old is None:
        return TokenBucket(rate.amount, rate.period, now)
    old.resize(rate.amount, rate.period, now)
    return old


def _budget(old: CalendarBudget | None, config: LimitsConfig, utc: float) -> CalendarBudget | None:
    if (spend := config.spend) is None:
        return None
    if old is None:
        return CalendarBudget(spend.picos, spend.period, utc)
    old.resize(spend.picos, spend.period, utc)
    return old
