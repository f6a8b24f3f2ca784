"""Leased limits: each gateway takes a part in advance, so that no request waits for Redis.

A request takes from the lease, and may overdraw it by a twentieth of the amount, or by one request if that is more. A
background task refills the lease and returns the amount of an idle lease. So each gateway exceeds the limit by at most
the overdraft, and withholds at most the same amount from the others.
"""

from __future__ import annotations

from typing import Any, Protocol

from config.schema.limits import LimitsConfig
from gateway.limits.allowance import CONCURRENCY_RETRY_AFTER, Hold, Refusal
from gateway.limits.remote.allowance import Debts, RemoteAllowance
from policies.limits.budget import Lease
from policies.limits.limits import RATED, Amounts

SOON = 0.05
"""Seconds until the lease is refilled if Redis has enough."""


class Lender(Debts, Protocol):
    """Refills leases."""

    def request_refill(self, allowance: LeasedAllowance) -> None:
        """Refill the leases of an allowance soon."""
        ...


class LeasedAllowance(RemoteAllowance):
    """A lease for each unit. `own` is the number of requests in flight."""

    __slots__ = ("_money", "_places", "_leases", "_window", "used")
    _debts: Lender

    def __init__(self, debts: Debts, scope: str, subject: str, config: LimitsConfig, now: float, utc: float) -> None:
        self._leases: dict[int, Lease] = {}
        self._money: Lease | None = None
        self._places: Lease | None = None
        self._window = 0.0
        self.used = False
        """Whether a request took from the leases since the last sweep."""
        super().__init__(debts, scope, subject, config, now, utc)

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        super().configure(config, now, utc)
        self._leases = {unit: _resized(self._leases.get(unit), amount) for unit, amount, _ in self._rates}
        self._money = None if self.spend is None else _resized(self._money, self.spend.amount)
        self._places = _resized(self._places, config.concurrency) if config.concurrency else None

    # ── the interface of an allowance ─────────────────────────────────────────────────────────────────

    def take(self, amounts: Amounts, picos: int, now: float, utc: float) -> Hold | None:
        debts = self._debts
        if not debts.up:
            return self.take_here(amounts, picos, now, utc)
        self._roll(utc)
        self.used = True
        debts.request_refill(self)
        if any(wait for _, wait in self._waits(amounts, picos, now, utc)):
            return None
        reserved = {unit: lease.take(amounts[unit]) for unit, lease in self._leases.items()}
        cost = 0 if self._money is None else int(self._money.take(picos))
        if self._places is not None:
            self._places.take(1)
        self.own += 1
        return Lent(self, reserved, cost, int(self._window))

    def settle(self, hold: Hold, amounts: Amounts, picos: int, now: float) -> None:
        if not isinstance(hold, Lent):
            self.settle_here(hold, amounts, picos, now)
            return
        for unit, lease in self._leases.items():
            if unit:  # a request stays counted
                lease.level += hold.reserved.get(unit, 0.0) - amounts[unit]
        self._refill(hold, picos)

    def undo(self, hold: Hold, now: float) -> None:
        if not isinstance(hold, Lent):
            self.undo_here(hold, now)
            return
        for unit, amount in hold.reserved.items():
            if (lease := self._leases.get(unit)) is not None:
                lease.level += amount
        self._refill(hold, 0)

    def _refill(self, hold: Hold, picos: int) -> None:
        if self._money is not None and hold.window == int(self._window):
            self._money.level += hold.picos - picos
        if self._places is not None:
            self._places.level += 1
        self.own -= 1
        self._debts.request_refill(self)

    def refusals(self, amounts: Amounts, picos: int, now: float, utc: float) -> list[Refusal]:
        if not self._debts.up:
            return super().refusals(amounts, picos, now, utc)
        return [Refusal(wait, unit, self) for unit, wait in self._waits(amounts, picos, now, utc) if wait]

    def _waits(self, amounts: Amounts, picos: int, now: float, utc: float) -> Any:
        """Seconds until each unit is available, by the last state of the row."""
        for unit, lease in self._leases.items():
            n = min(amounts[unit], lease.amount)
            bucket = self.buckets[RATED[unit]]
            yield RATED[unit], 0.0 if lease.has(n) else max(SOON, bucket.wait(bucket.clamp(n - lease.level), now))
        if self._money is not None and self.spend is not None:
            n = min(picos, self._money.amount)
            ok = self._money.has(n)
            yield "spend", 0.0 if ok else max(SOON, self.spend.wait(self.spend.clamp(picos), utc))
        if self._places is not None:
            yield "concurrency", 0.0 if self._places.has(1) else CONCURRENCY_RETRY_AFTER

    def remaining(self, now: float, utc: float) -> dict[str, float]:
        left = super().remaining(now, utc)
        for unit, lease in self._leases.items():
            left[RATED[unit]] = max(0.0, left[RATED[unit]] + lease.level)
        return left

    def is_idle(self, now: float, utc: float) -> bool:
        return self.own == 0 and not self.used and all(lease.level == 0 for lease in self._all())

    # ── refill ────────────────────────────────────────────────────────────────────────────────────────

    def _all(self) -> list[Lease]:
        return [*self._leases.values(), *(p for p in (self._money, self._places) if p is not None)]

    def _roll(self, utc: float) -> None:
        """Empty the lease of the budget when a new window begins."""
        if self.spend is not None and self._money is not None:
            self.spend.reset(utc)
            if self.spend.end != self._window:
                self._window, self._money.level = self.spend.end, 0

    def demand(self, utc: float, *, idle: bool) -> tuple[list[Any], int | bool] | None:
        """The row with the demand of each unit, and the required concurrency; None without demand.

        A returned amount leaves the lease before the message: a lost message never counts an amount twice.
        """
        self._roll(utc)
        demands = {unit: lease.demand(idle=idle) for unit, lease in self._leases.items()}
        money = 0.0 if self._money is None else self._money.demand(idle=idle)
        places: float = 0
        if self._places is not None:
            places = self._places.demand(idle=idle)
        if not any(demands.values()) and not money and not places:
            return None
        row = self.row((0, 0, 0, 0, 0), 0, utc)
        row[2] = [(unit, capacity, period, demands[unit], debt) for unit, capacity, period, _, debt in row[2]]
        if row[3]:
            row[3] = (*row[3][:3], money, *row[3][4:])
        slots = False if self._places is None else int(self.own + self._places.level + max(0, places))
        return row, slots

    def granted(self, state: list[Any], grant: list[Any], now: float) -> None:
        """Add the granted amounts. Concurrency is granted as a total."""
        rates, money, slots = grant
        self.load(state, now)
        for (unit, _, _), got in zip(self._rates, rates, strict=True):
            if got > 0:
                self._leases[unit].level += got
        if self._money is not None and money > 0:
            self._money.level += int(money)
        if self._places is not None and slots is not False:
            self._places.level = int(slots) - self.own


class Lent(Hold):
    """A hold that was taken from leases."""


def _resized(lease: Lease | None, amount: float) -> Lease:
    made = Lease(amount)
    if lease is not None:
        made.level = lease.level
    return made
