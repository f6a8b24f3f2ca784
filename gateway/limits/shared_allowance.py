"""An allowance in the shared table of all workers."""

from __future__ import annotations

from functools import partial
from math import inf

from config.schema.limits import LimitsConfig
from gateway.limits.allowance import Allowance, Hold, Refusal
from gateway.limits.drawn import UNITS, DrawnUnit, DrawTotals, Joins
from gateway.limits.mutexes import LimitsUnavailable
from gateway.limits.native_rows import PERIODS, native_row
from gateway.limits.shared import (
    END,
    HELD,
    HELD_PICOS,
    HELD_WINDOW,
    IDLE_AT,
    IDLE_UTC,
    IN_FLIGHT,
    KEY,
    LONGEST,
    PERIOD,
    RATES,
    START,
    STRIPES,
    USED,
    WINDOW,
    SharedTable,
    set_wide,
    wide,
)
from gateway.limits.subjects import Spare, Store
from policies.limits.budget import CalendarBudget, window
from policies.limits.limits import RATED, Amounts


class SharedAllowance(Allowance):
    """Reads its row under the row's lock, counts like `Allowance`, and writes the changes.

    An idle row may have been given to another subject since; then the allowance selects another row, and without room
    uses `spare`, which new subjects share. The native core does the same in one call where nothing is unusual: it
    declines refusals, new rows and windows, other amounts in the row, and a lock in use.
    """

    __slots__ = ("_base", "_column", "_d", "_held", "_key", "_longest", "_native", "_q", "_reserved", "_row", "_scope",
                 "_spare", "_stripe", "_table", "_words")  # fmt: skip

    def __init__(
        self,
        table: SharedTable,
        scope: str,
        subject: str,
        config: LimitsConfig,
        spare: Spare | None,
        now: float,
        utc: float,
    ) -> None:
        self._table = table
        self._scope = scope
        self._key = table.key(scope, subject)
        self._spare = spare
        self._row = -1
        super().__init__(config, now, utc)
        self._find(now, utc)

    @property
    def has_row(self) -> bool:
        """Whether the table had room for a row."""
        return self._row >= 0

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        super().configure(config, now, utc)
        rates = [(RATES + 3 * RATED.index(unit), getattr(config, unit), b) for unit, b in self.buckets.items()]
        self._words = tuple((i, i + 1, i + 2, bucket, rate.period / rate.amount) for i, rate, bucket in rates)
        """For each rate: the index of its words, its bucket, and the seconds for one unit."""
        self._longest = max((rate.period for _, rate, _ in rates), default=0.0)
        self._native = native_row(self, self._table, self._row, self._key)

    def _find(self, now: float, utc: float) -> bool:
        table, lasting = self._table, self._spare is None
        row = table.find(self._key, self._scope, lasting=lasting, now=now, utc=utc)
        if row is None:
            self._row = -1
            return False
        self._row, self._stripe = row, row % STRIPES
        self._base, self._column = table.views(row)
        self._q, self._d = self._base.cast("Q"), self._base.cast("d")
        self._held, self._reserved = self._column.cast("Q"), self._column.cast("d")
        self._native = native_row(self, self._table, self._row, self._key)
        return True

    # ── the interface of an allowance ─────────────────────────────────────────────────────────────────────

    def take(self, amounts: Amounts, picos: int, now: float, utc: float) -> Hold | None:
        table = self._table
        if table.late:
            table.settle_late()
        if self._native is not None and (taken := self._native.take(amounts, picos, now, utc)) is not None:
            return Hold(self, *taken)
        if not self._open(now, utc):
            return self._stand_in().take(amounts, picos, now, utc)
        try:
            self._load(now, utc)
            hold = Allowance.take(self, amounts, picos, now, utc)
            if hold is not None:
                self._save_taken(hold)
            return hold
        finally:
            table.unlock(self._stripe)

    def settle(self, hold: Hold, amounts: Amounts, picos: int, now: float) -> None:
        row = self._native
        if row is not None and row.settle(hold.reserved, hold.picos, hold.window, amounts, picos, now):
            return
        try:
            self._table.lock(self._stripe)  # a row with holds is not given away
        except LimitsUnavailable:
            self._table.late.append(partial(self.settle, hold, amounts, picos, now))
            return
        try:
            self._load(now, None)
            Allowance.settle(self, hold, amounts, picos, now)
            self._save_ended(hold)
        finally:
            self._table.unlock(self._stripe)

    def undo(self, hold: Hold, now: float) -> None:
        row = self._native
        if row is not None and row.undo(hold.reserved, hold.picos, hold.window, now):
            return
        try:
            self._table.lock(self._stripe)
        except LimitsUnavailable:
            self._table.late.append(partial(self.undo, hold, now))
            return
        try:
            self._load(now, None)
            Allowance.undo(self, hold, now)
            self._save_ended(hold)
        finally:
            self._table.unlock(self._stripe)

    def include(self, unit: DrawnUnit, drawn: DrawTotals, now: float, utc: float, *, joins: Joins = "") -> bool:
        if not self._open(now, utc):
            return True  # a subject without a row uses a shared one, which has a name of its own
        table, words = self._table, self._table.elsewhere(self._row)
        try:
            self._load(now, utc)
            self.elsewhere = {i: (words[3 * i], wide(words, 3 * i + 1)) for i in range(UNITS) if words[3 * i]}
            done = super().include(unit, drawn, now, utc, joins=joins)
            table.begin(self._row, table.me, self._base, self._column)
            self._d[LONGEST] = self._longest
            self._save_numbers()
            table.commit()
            # Last: if the process dies here, the same draws are counted again, and not forgotten.
            for i, (since, amount) in self.elsewhere.items():
                words[3 * i] = since
                set_wide(words, 3 * i + 1, amount)
            return done
        finally:
            table.unlock(self._stripe)

    def refusals(self, amounts: Amounts, picos: int, now: float, utc: float) -> list[Refusal]:
        if not self.look(now, utc):
            return self._stand_in().refusals(amounts, picos, now, utc)
        return super().refusals(amounts, picos, now, utc)

    def remaining(self, now: float, utc: float) -> dict[str, float]:
        self.look(now, utc)
        return super().remaining(now, utc)

    def is_idle(self, now: float, utc: float) -> bool:
        """Whether this process may drop the row's number: the numbers themselves stay in the table."""
        return self._row < 0 or self._held[HELD] == 0

    # ── the row ───────────────────────────────────────────────────────────────────────────────────────

    def _open(self, now: float, utc: float) -> bool:
        """Lock the row of this subject; False without a row."""
        table, key = self._table, self._key
        while self._row >= 0 or self._find(now, utc):
            table.lock(self._stripe)
            if self._q[KEY] == key[0] and self._q[KEY + 1] == key[1]:
                return True
            table.unlock(self._stripe)
            self._row = -1
        return False

    def _stand_in(self) -> Allowance:
        if self._spare is None:
            raise LimitsUnavailable
        return self._spare()

    def look(self, now: float, utc: float) -> bool:
        if not self._open(now, utc):
            return False
        self._load(now, utc)
        self._table.unlock(self._stripe)
        return True

    def _load(self, now: float, utc: float | None) -> None:
        d = self._d
        self.concurrency.in_flight = self._q[IN_FLIGHT]
        for level, at, capacity, bucket, _ in self._words:
            if (written := d[capacity]) == bucket.capacity:
                bucket.level = d[level]
                bucket.at = d[at]
            elif written:  # another amount, in another process or an older configuration: the used share stays
                bucket.level = d[level] / written * bucket.capacity
                bucket.at = d[at]
            else:
                bucket.level = bucket.capacity
                bucket.at = now
        if self.spend is not None:
            self._load_budget(self._table.wall() if utc is None else utc)

    def _load_budget(self, utc: float) -> None:
        budget, q, d = self.spend, self._q, self._d
        assert budget is not None
        if q[PERIOD] == 0:  # a new row
            budget.used = budget.window = 0
            budget.start, budget.end = window(budget.period, utc)
            return
        budget.used, budget.window, budget.start, budget.end = wide(q, USED), q[WINDOW], d[START], d[END]
        period = PERIODS[q[PERIOD] - 1]
        if period != budget.period:
            mine, budget.period = budget.period, period
            budget.resize(budget.amount, mine, utc)

    def _save_taken(self, hold: Hold) -> None:
        table, d, held, reserved = self._table, self._d, self._held, self._reserved
        table.begin(self._row, table.me, self._base, self._column)
        self._q[IN_FLIGHT] = self.concurrency.in_flight
        d[IDLE_AT] = inf
        d[LONGEST] = self._longest
        for level, at, capacity, bucket, _ in self._words:
            d[level] = bucket.level
            d[at] = bucket.at
            d[capacity] = bucket.capacity
        held[HELD] += 1
        for unit, amount in hold.reserved.items():
            reserved[unit] += amount
        if self.spend is not None:
            self._save_budget(self.spend)
            picos = wide(held, HELD_PICOS) if held[HELD_WINDOW] == hold.window else 0
            set_wide(held, HELD_PICOS, picos + hold.picos)
            held[HELD_WINDOW] = hold.window
        table.commit()

    def _save_ended(self, hold: Hold) -> None:
        table, held, reserved = self._table, self._held, self._reserved
        table.begin(self._row, table.me, self._base, self._column)
        self._save_numbers()
        held[HELD] -= 1
        for unit, amount in hold.reserved.items():
            reserved[unit] -= amount
        if self.spend is not None and held[HELD_WINDOW] == hold.window:
            set_wide(held, HELD_PICOS, max(0, wide(held, HELD_PICOS) - hold.picos))
        table.commit()

    def _save_numbers(self) -> None:
        """Write the row, within a change."""
        d = self._d
        self._q[IN_FLIGHT] = in_flight = self.concurrency.in_flight
        idle = 0.0  # when the last rate is full again
        for level, at, capacity, bucket, seconds in self._words:
            d[level] = left = bucket.level
            d[at] = bucket.at
            d[capacity] = bucket.capacity
            full = bucket.at + (bucket.capacity - left) * seconds
            if full > idle:
                idle = full
        if in_flight == 0:
            d[IDLE_AT] = idle
        if self.spend is not None:
            self._save_budget(self.spend)

    def _save_budget(self, budget: CalendarBudget) -> None:
        q, d = self._q, self._d
        set_wide(q, USED, budget.used)
        q[WINDOW], d[START], d[END] = budget.window, budget.start, budget.end
        q[PERIOD] = PERIODS.index(budget.period) + 1
        d[IDLE_UTC] = budget.end if budget.used else 0.0


def shared(table: SharedTable) -> Store:
    """A store of allowances that count in the table."""

    def make(
        scope: str, subject: str, config: LimitsConfig, spare: Spare | None, now: float, utc: float
    ) -> Allowance | None:
        allowance = SharedAllowance(table, scope, subject, config, spare, now, utc)
        return allowance if allowance.has_row or spare is None else None

    return make
