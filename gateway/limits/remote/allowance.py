"""An allowance that Redis counts, with the last state that this process received."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Protocol

from config.schema.limits import LimitsConfig
from gateway.limits.allowance import Allowance, Hold
from gateway.limits.drawn import SPEND, DrawnUnit, DrawTotals, Joins, debt_of
from gateway.limits.mutexes import LimitsUnavailable
from policies.limits.limits import NOTHING, RATED, Amounts

PREFIX = b"{headrace}:"
"""The prefix of keys, in braces: a cluster then stores all keys on one node, as a script requires."""
HOUR = 3600


class Debts(Protocol):
    """Records the usage that has not been reported to Redis."""

    @property
    def up(self) -> bool: ...

    @property
    def patience(self) -> float:
        """Seconds until Redis is tried again."""
        ...

    def owe(self, allowance: RemoteAllowance, amounts: Amounts, picos: int) -> None: ...


class RemoteAllowance(Allowance):
    """A mirror of a row in Redis.

    While Redis is unavailable it counts locally, from the row's last state, and the usage of that time is a debt.
    """

    __slots__ = ("_debts", "_is_least", "_owed", "_rates", "_recorded", "_refuses", "_ttl", "key", "own")

    def __init__(self, debts: Debts, scope: str, subject: str, config: LimitsConfig, now: float, utc: float) -> None:
        self._debts = debts
        name = blake2b(f"{scope}\0{subject}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self.key = PREFIX + b"row:" + name.encode()
        self.own = 0
        """Requests in flight of this gateway."""
        self._recorded: dict[int, int] = {}
        """The money that the state database has, by window."""
        self._owed: dict[int, tuple[float, float]] = {}
        """By the index of a rate: what it owes by the state database, and when."""
        super().__init__(config, now, utc)

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        super().configure(config, now, utc)
        self._refuses = config.on_redis_failure == "refuse" and not self.in_shadow
        units = [(RATED.index(unit), getattr(config, unit)) for unit in self.buckets]
        self._is_least = self._refuses and config.count == "exact"
        """Whether Redis has at least what is recorded when nothing is in flight: no gateway counts without it."""
        self._rates = [(unit, float(rate.amount), rate.period) for unit, rate in units]
        periods = [2 * rate.period for _, rate in units]
        self._ttl = int(max([60, *periods, HOUR if config.concurrency else 0]))

    def row(self, amounts: Amounts, picos: int, utc: float) -> list[Any]:
        """The row in the script's format, with the amounts to take; no amount is above the capacity.

        With what is recorded, for a row that Redis does not have."""
        rates = [
            (unit, capacity, period, min(amounts[unit], capacity), self._debt(unit, capacity / period, utc))
            for unit, capacity, period in self._rates
        ]
        ttl, spend = self._ttl, None
        if (budget := self.spend) is not None:
            ttl = max(ttl, int(budget.reset(utc)) + HOUR)
            recorded = float(self._recorded.get(int(budget.start), 0))
            amount, n = float(budget.amount), float(budget.clamp(picos))
            spend = (budget.period, amount, budget.end, n, recorded, self._is_least)
        return [ttl, self.config.concurrency or False, rates, spend or False, self.in_shadow]

    def _debt(self, unit: int, rate: float, utc: float) -> float:
        if unit not in self._owed:
            return 0.0
        debt, at = self._owed[unit]
        return max(0.0, debt - rate * max(0.0, utc - at))

    def include(self, unit: DrawnUnit, drawn: DrawTotals, now: float, utc: float, *, joins: Joins = "") -> bool:
        """Redis counts all draws itself. What is recorded is for a Redis that has lost its data, and for requests that
        a killed gateway could not settle. False while Redis may have less than is recorded."""
        slots = drawn.slots(unit.name, own=True)
        if unit.unit == SPEND:
            self._recorded = slots
            if (budget := self.spend) is not None:
                budget.reset(utc)
                recorded = slots.get(int(budget.start), 0)
                is_behind = recorded > budget.used
                budget.used = max(budget.used, recorded)  # until the next answer of Redis
                if self._is_least and (is_behind or self.concurrency.in_flight):
                    self._debts.owe(self, NOTHING, 0)  # asks for its state
                    return False
        else:
            bucket = self.buckets[RATED[unit.unit]]
            self._owed[unit.unit] = debt_of(slots, unit, bucket.capacity, utc), utc
        return True

    def load(self, state: list[Any], now: float) -> None:
        """Update the mirror from the row's state."""
        in_flight, levels, used, _ = state
        self.concurrency.in_flight = int(in_flight)
        for bucket, level in zip(self.buckets.values(), levels, strict=True):
            bucket.level, bucket.at = level, now
        if self.spend is not None:
            self.spend.used = int(used)

    def take_here(self, amounts: Amounts, picos: int, now: float, utc: float) -> Hold | None:
        """Take while Redis is unavailable. Raises `LimitsUnavailable` if the limit does not allow that."""
        if self._refuses:
            raise LimitsUnavailable(self._debts.patience)
        self.concurrency.in_flight = self.own
        hold = Allowance.take(self, amounts, picos, now, utc)
        if hold is not None:
            self.own += 1
        return hold

    def settle_here(self, hold: Hold, amounts: Amounts, picos: int, now: float) -> None:
        """Add the local usage to the debts."""
        self.concurrency.in_flight = max(1, self.own)
        self.own -= 1
        Allowance.settle(self, hold, amounts, picos, now)
        self._debts.owe(self, (1, *amounts[1:]), picos)

    def undo_here(self, hold: Hold, now: float) -> None:
        """Undo a debt."""
        self.concurrency.in_flight = max(1, self.own)
        self.own -= 1
        Allowance.undo(self, hold, now)

    def is_idle(self, now: float, utc: float) -> bool:
        """Whether it may be dropped here: the numbers are in Redis."""
        return self.own == 0
