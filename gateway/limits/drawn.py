"""What requests have drawn from limits of long periods, as the state database has it: a ledger begins with it.

A draw is the amount that one request took from one unit of one allowance, in one slot of time. Each is a part of the
request's record in the journal, and the database has their sums by name, slot and ledger. A ledger counts its own draws
itself. It adds those of all other ledgers: other hosts, and earlier processes of this one. So each counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, Protocol

from config.schema.limits import LimitsConfig
from config.schema.money import Period
from gateway.limits.mutexes import LimitsUnavailable
from policies.limits.budget import window
from policies.limits.limits import RATED, Amounts

HOUR, DAY = 3600, 86400
SPEND: Final = len(RATED)
"""The unit of money, beside the index of each rate in `Amounts`."""
UNITS: Final = SPEND + 1
THOUSANDTHS = 1000
"""Rates are drawn in thousandths: milliseconds of a device are no whole numbers."""
PART = 10**9
EARLIER: Final = "earlier"
"""In place of a ledger: what was used before a limit existed, from the records of usage."""
PERIODS = 3
"""Periods of a rate from whose draws it is restored. A client that never pauses owes draws of all times."""


class Draw(NamedTuple):
    """What one request, or several, have drawn. Picos of money, thousandths of other units."""

    ledger: str
    name: str
    begin: int
    """The slot, in Unix seconds: the window of a budget, or an hour or a day of a rate."""
    until: int
    """When no limit reads it any more."""
    amount: int
    billions: int = 0
    """Billions of the unit beyond `amount`, which has 63 bits."""

    @property
    def whole(self) -> int:
        """The whole amount."""
        return self.billions * PART + self.amount


def drawn(draws: Iterable[Draw]) -> tuple[Draw, ...]:
    """The sums of draws: one for each ledger, name and slot."""
    sums: dict[tuple[str, str, int, int], int] = defaultdict(int)
    for draw in draws:
        sums[draw.ledger, draw.name, draw.begin, draw.until] += draw.whole
    return tuple(draw_of(*place, whole) for place, whole in sums.items())


def draw_of(ledger: str, name: str, begin: int, until: int, whole: int) -> Draw:
    """A draw of a whole amount."""
    billions, amount = divmod(whole, PART)
    return Draw(ledger, name, begin, until, amount, billions)


class DrawnUnit(NamedTuple):
    """A unit of an allowance with a long period."""

    unit: int
    name: str
    """The same for the same subject of an equal limit, wherever it is in the file and in whatever scope it counts."""
    period: Period | float

    def slot(self, utc: float) -> tuple[int, int]:
        """The begin of the slot of a time, and when no limit reads it any more."""
        if isinstance(self.period, str):
            begin, end = window(self.period, utc)
            return int(begin), int(end)
        size = self.slot_seconds
        begin = int(utc) // size * size
        return begin, begin + size + int(PERIODS * self.period)

    @property
    def slot_seconds(self) -> int:
        """The length of a slot of a rate."""
        return HOUR if isinstance(self.period, float) and self.period <= DAY else DAY

    def draw(self, ledger: str, amounts: Amounts, picos: int, utc: float) -> Draw | None:
        """What a request that began at `utc` has drawn; None for nothing."""
        rated = round(amounts[self.unit] * THOUSANDTHS) if 0 < self.unit < SPEND else THOUSANDTHS
        whole = picos if self.unit == SPEND else rated  # a request counts without an answer too
        return draw_of(ledger, self.name, *self.slot(utc), whole) if whole > 0 else None


def units_of(config: LimitsConfig, owner: str, subject: str) -> tuple[DrawnUnit, ...]:
    """The units whose draws are stored: money, and rates of a day or longer. A shorter rate refills soon."""
    periods: list[tuple[int, Period | float, str]] = []
    for unit, name in enumerate(RATED):
        if (rate := getattr(config, name)) is not None and rate.period >= DAY:
            periods.append((unit, rate.period, name))
    if config.spend is not None:
        periods.append((SPEND, config.spend.period, config.spend.currency))
    models = "" if config.models is None else ",".join(config.models)
    return tuple(
        DrawnUnit(unit, _name(owner, config.per, models, subject, name, str(period)), period)
        for unit, period, name in periods
    )


def _name(*parts: str) -> str:
    """The name without the parts: a user may be a person."""
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def debt_of(slots: Mapping[int, int], unit: DrawnUnit, amount: float, utc: float) -> float:
    """What a rate of `amount` units a period owes after these draws (by slot, in thousandths), in units.

    Never too little: each draw counts at the end of its slot, and nothing was left before the first of these periods.
    """
    period = float(unit.period)
    rate, debt, at = amount / period, amount, utc - PERIODS * period
    for begin, drawn_then in sorted(slots.items()):
        end = max(at, min(float(begin + unit.slot_seconds), utc))
        debt = max(0.0, debt - rate * (end - at)) + drawn_then / THOUSANDTHS
        at = end
    return max(0.0, debt - rate * (utc - at))


Joins = Literal["", "new", "changed"]
"""Whether an allowance begins with what is recorded of its unit: as a new one, or with another period than before."""


class DrawnAllowance(Protocol):
    """An allowance, for what it follows."""

    config: LimitsConfig
    drawn: tuple[DrawnUnit, ...]

    def include(self, unit: DrawnUnit, drawn: DrawTotals, now: float, utc: float, *, joins: Joins = "") -> bool:
        """Count the draws of other ledgers that are new. False if some are of a slot that has not begun here.

        The draws of this ledger are in the allowance. They are not if it `joins`: another one may have had them before.
        """
        ...


class DrawTotals:
    """What the database has, as one process last read it. `ledger` is the name of its own ledger."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self.is_recorded = False
        """Whether draws are recorded: the configuration has a section `usage`."""
        self._draws: dict[str, dict[int, dict[str, Draw]]] = {}
        self._allowances: dict[str, list[DrawnAllowance]] = {}
        self._late: set[str] = set()
        """Names that are applied again: of a slot that has not begun here, or while a row was locked."""

    # ── the limits that read it ───────────────────────────────────────────────────────────────────────

    def join(self, allowance: DrawnAllowance, owner: str, subject: str, now: float, utc: float) -> None:
        """Let an allowance begin with what is recorded, and follow it. Again after another limit was applied to it."""
        self.leave(allowance)
        before = {unit.unit: unit.name for unit in allowance.drawn}
        allowance.drawn = units_of(allowance.config, owner, subject) if self.is_recorded else ()
        for unit in allowance.drawn:
            self._allowances.setdefault(unit.name, []).append(allowance)
            if unit.name in self._draws:
                is_same = before.get(unit.unit) == unit.name
                joins: Joins = "" if is_same else "changed" if unit.unit in before else "new"
                self._include(allowance, unit, now, utc, joins=joins)

    def leave(self, allowance: DrawnAllowance) -> None:
        """Forget an allowance."""
        for unit in allowance.drawn:
            following = [each for each in self._allowances.get(unit.name, ()) if each is not allowance]
            if following:
                self._allowances[unit.name] = following
            else:
                self._allowances.pop(unit.name, None)

    # ── what the database has ─────────────────────────────────────────────────────────────────────────

    def put(self, draws: Iterable[Draw], now: float, utc: float) -> None:
        """Take over sums that have changed."""
        changed, self._late = self._late, set()
        for draw in draws:
            self._draws.setdefault(draw.name, {}).setdefault(draw.begin, {})[draw.ledger] = draw
            changed.add(draw.name)
        for name in changed:
            self._apply(name, now, utc)

    def replace(self, draws: Iterable[Draw], now: float, utc: float) -> None:
        """Take over all sums: another database may be in place of the one before, and old slots are deleted."""
        before, self._draws = self._draws, {}
        self.put(draws, now, utc)
        rates = {unit.name for each in self._allowances.values() for unit in each[0].drawn if unit.unit != SPEND}
        for name in [name for name in self._allowances if name in before or name in rates]:
            self._apply(name, now, utc)

    def slots(self, name: str, *, own: bool = False) -> dict[int, int]:
        """The amounts by slot, of all other ledgers, or with the own one."""
        by_slot = {
            begin: sum(draw.whole for ledger, draw in by_ledger.items() if own or ledger != self.ledger)
            for begin, by_ledger in self._draws.get(name, {}).items()
        }
        return {begin: amount for begin, amount in by_slot.items() if amount}

    def _apply(self, name: str, now: float, utc: float) -> None:
        for allowance in self._allowances.get(name, ()):
            for unit in [unit for unit in allowance.drawn if unit.name == name]:
                self._include(allowance, unit, now, utc, joins="")

    def _include(self, allowance: DrawnAllowance, unit: DrawnUnit, now: float, utc: float, *, joins: Joins) -> None:
        try:
            if not allowance.include(unit, self, now, utc, joins=joins):
                self._late.add(unit.name)
        except LimitsUnavailable:
            self._late.add(unit.name)
