"""The required decisions of limits, by arithmetic of its own: every admission and every refusal is checked against it.

An event is worth what the documentation states: a rate is a bucket that holds one period's amount, an estimate is
reserved and the actual use settled, a budget is one window of the calendar, a reload preserves the share that was used,
and so does one that brings a removed budget back.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from config.schema.config import Config, LimitsConfig
from policies.facts import Facts

# Two orders of the same sums differ by this much; a decision that hangs on less may go either way.
ROUNDING = 1e-6
SECONDS = {"hour": 3600, "day": 86400}


@dataclass(slots=True)
class Bucket:
    amount: float
    period: float
    level: float
    at: float

    def now(self, now: float) -> float:
        self.level = min(self.amount, self.level + (now - self.at) * self.amount / self.period)
        self.at = now
        return self.level

    def give(self, n: float, now: float) -> None:
        self.level = min(self.amount, self.now(now) + n)

    def resize(self, amount: float, period: float, now: float) -> None:
        share = self.now(now) / self.amount
        self.amount, self.period, self.level = amount, period, share * amount


@dataclass(slots=True)
class Purse:
    amount: int
    period: str
    window: int
    used: int = 0
    turns: int = 0
    """Windows that are over: what was taken in one of them is settled no more."""

    def roll(self, utc: float) -> None:
        if (window := int(utc // SECONDS[self.period])) != self.window:
            self.window, self.used = window, 0
            self.turns += 1


@dataclass(slots=True)
class Share:
    """One subject of one limit."""

    config: LimitsConfig
    at_once: int = 0
    requests: Bucket | None = None
    tokens: Bucket | None = None
    spend: Purse | None = None

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        self.config = config
        self.requests = _bucket(self.requests, config.requests, now)
        self.tokens = _bucket(self.tokens, config.tokens, now)
        if (spend := config.spend) is None:
            self.spend = None
        elif self.spend is None:
            self.spend = Purse(spend.picos, spend.period, int(utc // SECONDS[spend.period]))
        else:
            self.spend.roll(utc)
            if self.spend.period != spend.period:  # what was used is held against the new period's window
                self.spend.window = int(utc // SECONDS[spend.period])
            self.spend.amount, self.spend.period = spend.picos, spend.period

    def margins(self, tokens: int, picos: int, now: float, utc: float) -> dict[str, float]:
        """The surplus of each unit over the request; below 0 the request must be refused."""
        left_by_unit: dict[str, float] = {}
        if self.config.concurrency is not None:
            left_by_unit["concurrency"] = self.config.concurrency - self.at_once - 1
        if self.requests is not None:
            left_by_unit["requests"] = self.requests.now(now) - 1
        if self.tokens is not None:
            left_by_unit["tokens"] = self.tokens.now(now) - min(tokens, self.tokens.amount)
        if self.spend is not None:
            self.spend.roll(utc)
            left_by_unit["spend"] = self.spend.amount - self.spend.used - min(picos, self.spend.amount)
        return left_by_unit


def _bucket(old: Bucket | None, rate: Any, now: float) -> Bucket | None:
    if rate is None:
        return None
    if old is None:
        return Bucket(rate.amount, rate.period, rate.amount, now)
    old.resize(rate.amount, rate.period, now)
    return old


@dataclass(slots=True)
class Held:
    share: Share
    tokens: float
    picos: int
    turn: int


@dataclass(slots=True)
class Admission:
    """One that is to be settled once."""

    tenant: str
    held: list[Held]
    settled: bool = False


@dataclass(slots=True)
class LimitsOracle:
    """Recomputes every limit; `violations` has the differences."""

    limits: dict[str, list[tuple[Any, LimitsConfig]]] = field(default_factory=dict)
    shares: dict[tuple[Any, ...], Share] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    admitted: int = 0
    refused: int = 0

    def configure(self, config: Config, now: float, utc: float) -> None:
        self.limits = {tenant.name: _scoped(tenant.limit_list()) for tenant in config.tenants}
        live = {(name, scope): limit for name, scoped in self.limits.items() for scope, limit in scoped}
        for key, share in list(self.shares.items()):
            if (limit := live.get(key[:2])) is not None:
                share.configure(limit, now, utc)
            elif share.config.spend is None:  # a limit with a budget that comes back continues with its usage
                del self.shares[key]

    def reserved(
        self, facts: Facts, model: str, tokens: int, picos: int, now: float, utc: float, refused: str | None
    ) -> Admission:
        """A reservation was made, or refused for the unit that is named."""
        applying = [self._share(facts, model, scope, limit, now, utc) for scope, limit in self._covering(facts)]
        enforced = [share for share in applying if share.config.enforce == "always"]
        margins = [m for share in enforced for m in share.margins(tokens, picos, now, utc).items()]
        if refused is None:
            self.admitted += 1
            self.violations += [
                f"{facts.tenant} admitted {-m:g} {unit} over its limit" for unit, m in margins if m < -ROUNDING
            ]
        else:
            self.refused += 1
            if not any(unit == refused and margin < ROUNDING for unit, margin in margins):
                self.violations.append(f"{facts.tenant} refused for {refused} without a reason: {margins}")
            return Admission(facts.tenant, [], settled=True)
        held = [
            self._take(share, tokens, picos, now)
            for share in applying
            if share in enforced or all(m >= 0 for m in share.margins(tokens, picos, now, utc).values())
        ]
        return Admission(facts.tenant, held)

    def settled(self, admission: Admission, tokens: int, picos: int, now: float) -> None:
        """The truth is known."""
        if admission.settled:
            return
        admission.settled = True
        for held in admission.held:
            share = held.share
            share.at_once -= 1
            if share.tokens is not None:
                share.tokens.give(held.tokens - tokens, now)
            if share.spend is not None and share.spend.turns == held.turn:
                share.spend.used = max(0, share.spend.used + picos - held.picos)

    def _covering(self, facts: Facts) -> list[tuple[Any, LimitsConfig]]:
        return [(s, c) for s, c in self.limits[facts.tenant] if c.models is None or facts.model in c.models]

    def _share(self, facts: Facts, model: str, scope: Any, limit: LimitsConfig, now: float, utc: float) -> Share:
        subject = {
            "tenant": "",
            "key": facts.key,
            "model": model,
            "user": f"u {facts.user}" if facts.user else facts.key,
        }
        key = (facts.tenant, scope, subject[limit.per])
        if key not in self.shares:
            self.shares[key] = Share(limit)
            self.shares[key].configure(limit, now, utc)
        return self.shares[key]

    def _take(self, share: Share, tokens: int, picos: int, now: float) -> Held:
        share.at_once += 1
        estimate, cost, turn = 0.0, 0, 0
        if share.requests is not None:
            share.requests.give(-1, now)
        if share.tokens is not None:
            estimate = min(tokens, share.tokens.amount)
            share.tokens.give(-estimate, now)
        if share.spend is not None:
            cost, turn = min(picos, share.spend.amount), share.spend.turns
            share.spend.used += cost
        return Held(share, estimate, cost, turn)


def _scoped(limits: tuple[LimitsConfig, ...]) -> list[tuple[Any, LimitsConfig]]:
    seen: Counter[Any] = Counter()
    numbered = []
    for limit in limits:
        scope = (limit.per, limit.models)
        numbered.append(((*scope, seen[scope]), limit))
        seen[scope] += 1
    return numbered
