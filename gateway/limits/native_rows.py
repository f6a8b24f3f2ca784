"""Rows of the shared table in the native core."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from adapters import native
from config.schema.money import Period
from gateway.limits.allowance import Allowance
from gateway.limits.shared import STRIPES, Key, SharedTable, lock_offset
from policies.limits.limits import RATED

if TYPE_CHECKING:
    from adapters.native._core import Row

PERIODS: tuple[Period, ...] = get_args(Period)
LARGE_BUDGET = 2**61
"""From this amount of picos on, Python alone counts: the native core has 64 bits for a sum."""


def native_row(allowance: Allowance, table: SharedTable, row: int, key: Key) -> Row | None:
    """A row with this process's limits of its subject; None if Python alone counts."""
    budget = allowance.spend
    if native.row_type is None or row < 0 or (budget is not None and budget.amount >= LARGE_BUDGET):
        return None
    rates = [(RATED.index(unit), bucket, getattr(allowance.config, unit)) for unit, bucket in allowance.buckets.items()]
    start, column = table.offsets(row, table.me)
    return native.row_type(
        table.memory,
        row=start,
        column=column,
        journal=table.journal_offset(table.me),
        lock=lock_offset(row % STRIPES),
        key=key,
        number=row,
        worker=table.me,
        rates=tuple((unit, bucket, bucket.capacity, bucket.rate, r.period / r.amount) for unit, bucket, r in rates),
        longest=max((rate.period for _, _, rate in rates), default=0.0),
        most=allowance.concurrency.limit,
        budget=budget,
        amount=0 if budget is None else budget.amount,
        period=0 if budget is None else PERIODS.index(budget.period) + 1,
    )
