"""Exact limits: every request reserves in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.limits.allowance import Allowance, Hold
from gateway.limits.remote.allowance import Debts, RemoteAllowance
from policies.limits.limits import NOTHING, Amounts


class Bookings(Debts, Protocol):
    """Receives the ends of bookings."""

    def end(self, booking: Booking, amounts: Amounts, picos: int, *, undone: bool) -> None: ...


class Booking(Hold):
    """The amounts that one request holds of all its rows."""

    id: int
    parts: list[ExactAllowance]

    def __post_init__(self) -> None:
        for part in self.parts:
            part.own += 1

    @property
    def allowances(self) -> Sequence[Allowance]:
        return self.parts


class ExactAllowance(RemoteAllowance):
    """Reserved by `RedisLedger.reserve` with the request's other exact limits; `take` is used while Redis is
    unavailable.
    """

    __slots__ = ()
    _debts: Bookings

    def take(self, amounts: Amounts, picos: int, now: float, utc: float) -> Hold | None:
        return self.take_here(amounts, picos, now, utc)

    def settle(self, hold: Hold, amounts: Amounts, picos: int, now: float) -> None:
        if isinstance(hold, Booking):
            self._end(hold, amounts, picos, undone=False)
        else:
            self.settle_here(hold, amounts, picos, now)

    def undo(self, hold: Hold, now: float) -> None:
        if isinstance(hold, Booking):
            self._end(hold, NOTHING, 0, undone=True)
        else:
            self.undo_here(hold, now)

    def _end(self, booking: Booking, amounts: Amounts, picos: int, *, undone: bool) -> None:
        for part in booking.parts:
            part.own -= 1
        self._debts.end(booking, amounts, picos, undone=undone)
