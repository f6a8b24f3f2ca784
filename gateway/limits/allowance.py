"""The remaining amount of one subject of a limit: the tenant, one key, one model or one end user."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from config.schema.limits import LimitsConfig, Per
from config.schema.money import PICOS, Period
from config.schema.units import RateLimit
from gateway.limits.drawn import SPEND, THOUSANDTHS, DrawnUnit, DrawTotals, Joins, debt_of
from policies.limits.budget import CalendarBudget
from policies.limits.limits import NOTHING, RATED, Amounts, Concurrency, Rated, TokenBucket

Unit = Rated | Literal["spend", "concurrency"]
CONCURRENCY_RETRY_AFTER = 1.0
_PERIODS = get_args(Period)


class Refusal(NamedTuple):
    """The exhausted unit, and the seconds until it is available."""

    wait: float
    unit: Unit
    allowance: Allowance


class Shadowed(NamedTuple):
    """A limit in shadow mode that would have refused the request."""

    unit: Unit
    per: Per


class Hold(Struct, eq=False, gc=False):
    """The amounts that one request has taken from one allowance."""

    allowance: Allowance
    reserved: dict[int, float]
    """Reserved amounts by the unit's index in `Amounts`; only units that are settled."""
    picos: int
    window: int

    @property
    def allowances(self) -> Sequence[Allowance]:
        """All allowances from which it is taken."""
        return (self.allowance,)


class Allowance:
    """Buckets, a budget and a concurrency limit together; None for an absent limit. Survives reloads.

    The numbers are those of one process; a subclass stores them where several processes can read them.
    """

    __slots__ = (
        "buckets", "concurrency", "config", "drawn", "elsewhere", "in_shadow", "reported", "requests", "settled",
        "spend", "subject",
    )  # fmt: skip

    def __init__(self, config: LimitsConfig, now: float, utc: float) -> None:
        self.drawn: tuple[DrawnUnit, ...] = ()
        """The units whose draws are recorded."""
        self.elsewhere: dict[int, tuple[int, int]] = {}
        """Of each such unit: the draws of other ledgers that are included, and since which slot."""
        self.buckets: dict[Rated, TokenBucket] = {}
        self.spend: CalendarBudget | None = None
        self.subject = ""
        """The subject in its limit, such as `key:ID`."""
        self.concurrency = Concurrency(sys.maxsize)
        self.configure(config, now, utc)

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        """Apply a new limit: rates preserve the used share, budgets the spent amount."""
        self.config = config
        self.in_shadow = config.enforce == "shadow"
        rates: list[tuple[Rated, RateLimit | None]] = [(unit, getattr(config, unit)) for unit in RATED]
        self.buckets = {u: _bucket(self.buckets.get(u), rate, now) for u, rate in rates if rate is not None}
        rated = () if self.in_shadow else self.buckets.items()
        self.reported = tuple((unit, bucket, str(int(bucket.capacity))) for unit, bucket in rated)
        """The rates that the headers of a response report, with the whole units of their limits."""
        self.requests = self.buckets.get("requests")
        self.settled = tuple((RATED.index(u), bucket) for u, bucket in self.buckets.items() if u != "requests")
        """The units that are reserved by an estimate and charged by the actual usage, by their index in `Amounts`."""
        self.spend = _budget(self.spend, config, utc)
        self.concurrency.limit = config.concurrency or sys.maxsize

    @property
    def name(self) -> str:
        """The name of the subject without its kind; empty for the whole tenant."""
        return self.subject.partition(":")[2] or ("(others)" if self.subject == "others" else "")

    @property
    def units(self) -> list[Unit]:
        """The limited units."""
        others: list[tuple[Unit, object]] = [("spend", self.config.spend), ("concurrency", self.config.concurrency)]
        return [*self.buckets, *(unit for unit, limit in others if limit is not None)]

    def take(self, amounts: Amounts, picos: int, now: float, utc: float) -> Hold | None:
        """Take a concurrency slot, a request, and the estimated `amounts` and `picos`; None if one of them is not
        available.

        Nothing is taken then, and `refusals` lists the exhausted units.
        """
        if not self.concurrency.take():
            return None
        requests, budget = self.requests, self.spend
        if requests is not None and requests.take(1, now):
            self.concurrency.release()
            return None
        reserved: dict[int, float] = {}
        for i, bucket in self.settled:
            estimate = amounts[i]
            if estimate > bucket.capacity:
                estimate = bucket.capacity
            if bucket.take(estimate, now):
                self._put_back(reserved, now)
                return None
            reserved[i] = estimate
        cost = window = 0
        if budget is not None:
            cost = budget.clamp(picos)
            if budget.take(cost, utc):
                self._put_back(reserved, now)
                return None
            window = budget.window
        return Hold(self, reserved, cost, window)

    def _put_back(self, reserved: dict[int, float], now: float) -> None:
        self.concurrency.release()
        if self.requests is not None:
            self.requests.settle(1, 0, now)
        for i, bucket in self.settled:
            if estimate := reserved.get(i):
                bucket.settle(estimate, 0, now)

    def settle(self, hold: Hold, amounts: Amounts, picos: int, now: float) -> None:
        """Charge the actual usage instead of the estimates. Once for each hold."""
        self.concurrency.release()
        for i, bucket in self.settled:
            bucket.settle(hold.reserved.get(i, 0.0), amounts[i], now)
        if (budget := self.spend) is not None:
            budget.settle(hold.picos, picos, hold.window)

    def undo(self, hold: Hold, now: float) -> None:
        """Undo a hold: another limit refused the request."""
        if self.requests is not None:
            self.requests.settle(1, 0, now)
        Allowance.settle(self, hold, NOTHING, 0, now)

    def include(self, unit: DrawnUnit, drawn: DrawTotals, now: float, utc: float, *, joins: Joins = "") -> bool:
        slots = drawn.slots(unit.name)
        if unit.unit != SPEND:
            owed = drawn.slots(unit.name, own=True) if joins else slots
            self._include_rate(unit, slots, owed, now, utc)
            return True
        if (budget := self.spend) is not None:
            budget.reset(utc)  # the window of now
            begin = int(budget.start)
            place = begin * len(_PERIODS) + _PERIODS.index(budget.period)
            since, included = self.elsewhere.get(SPEND, (0, 0))
            included = included if since == place else 0
            amount = max(included, slots.get(begin, 0))
            if since != place and (joins == "changed" or (joins == "new" and not budget.used)):
                budget.used = max(budget.used, drawn.slots(unit.name, own=True).get(begin, 0))
            else:
                budget.used += amount - included
            self.elsewhere[SPEND] = place, amount
            return all(each <= begin for each in slots)
        return True

    def _include_rate(
        self, unit: DrawnUnit, slots: dict[int, int], owed: dict[int, int], now: float, utc: float
    ) -> None:
        """The first time, the bucket owes what is not refilled of all draws. Later draws are charged when they come.

        Slots of the period before are deleted only when the next one has been compared with them.
        """
        bucket, period = self.buckets[RATED[unit.unit]], int(unit.period)
        first = (int(utc) // period - 1) * period
        since, included = self.elsewhere.get(unit.unit, (0, 0))
        if since:
            new = sum(amount for begin, amount in slots.items() if begin >= since) - included
            bucket.settle(0, max(0, new) / THOUSANDTHS, now)
        else:
            of_all = owed if bucket.refill(now) >= bucket.capacity else slots
            bucket.settle(0, debt_of(of_all, unit, bucket.capacity, utc), now)
        amount = sum(amount for begin, amount in slots.items() if begin >= first)
        if since == first:
            amount = max(amount, included)
        self.elsewhere[unit.unit] = first, amount

    def look(self, now: float, utc: float) -> bool:
        """Refresh the numbers from shared storage before a report; False if it is not available."""
        return True

    def refusals(self, amounts: Amounts, picos: int, now: float, utc: float) -> list[Refusal]:
        """Each unit that is not available; takes nothing."""
        exceeded: list[Refusal] = []
        concurrency = self.concurrency
        if concurrency.in_flight >= concurrency.limit:
            exceeded.append(Refusal(CONCURRENCY_RETRY_AFTER, "concurrency", self))
        if (bucket := self.requests) is not None and (wait := bucket.wait(1, now)):
            exceeded.append(Refusal(wait, "requests", self))
        for i, bucket in self.settled:
            if wait := bucket.wait(bucket.clamp(amounts[i]), now):
                exceeded.append(Refusal(wait, RATED[i], self))
        if (budget := self.spend) is not None and (wait := budget.wait(budget.clamp(picos), utc)):
            exceeded.append(Refusal(wait, "spend", self))
        return exceeded

    def remaining(self, now: float, utc: float) -> dict[str, float]:
        """The available amount by unit; money in whole units."""
        left: dict[str, float] = {unit: bucket.remaining(now) for unit, bucket in self.buckets.items()}
        if self.spend is not None:
            left["spend"] = self.spend.remaining(utc) / PICOS
        if self.config.concurrency is not None:
            left["concurrency"] = max(0, self.concurrency.limit - self.concurrency.in_flight)
        return left

    def is_idle(self, now: float, utc: float) -> bool:
        """Whether no request is in flight and no usage is owed: a new allowance would grant the same."""
        return (
            self.concurrency.in_flight == 0
            and all(bucket.refill(now) >= bucket.capacity for bucket in self.buckets.values())
            and (self.spend is None or self.spend.remaining(utc) == self.spend.amount)
        )


def _bucket(old: TokenBucket | None, rate: RateLimit, now: float) -> TokenBucket:
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
