"""Limits that are new in a configuration begin with the recorded usage of their running period.

A limit has draws from when it is in the file. What was used before is the recorded usage without these draws: it is
stored beside them, as those of a ledger of its own. The usage and the draws of a request come in one transaction, and
this one excludes it, so each request counts once: as usage alone, or as a draw.

Requests that ended before the limit was there may be imported after it, and others were in flight. So the same is
counted again for some time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from config.schema.limits import Per
from gateway.features.journal.lines import MICROS, begin_of
from gateway.features.usage.draws import put_draws
from gateway.features.usage.labels import HOUR
from gateway.features.usage.report import Label, Period, UsageQuery, rows_of
from gateway.features.usage.schema import begun, draws
from gateway.limits.drawn import EARLIER, PERIODS, SPEND, THOUSANDTHS, Draw, DrawnUnit, debt_of, draw_of
from gateway.limits.long_limits import LongLimit, LongLimits
from gateway.limits.subjects import WHOLE, recorded_subject
from gateway.state.statements import in_parts
from policies.globs import GlobSet
from policies.limits.limits import RATED

AGAIN = 3600
"""Seconds in which the usage before a limit is counted again."""
_ALL_ROWS = 2**31
_FIRST = "first"
"""In place of a name: when a gateway of this release first looked."""
_REQUESTS = RATED.index("requests")
_LABELS: dict[Per, tuple[Label, ...]] = {
    "tenant": (), "team": ("team",), "key": ("key",), "model": ("model",), "user": ("user",),
}  # fmt: skip
"""The labels of usage that determine a subject."""
Slots = dict[int, int]
"""Amounts by the begin of their slot: picos, or thousandths of other units."""


class _Limited(NamedTuple):
    """One unit of a limit."""

    limit: LongLimit
    unit: DrawnUnit
    since: int = 0
    """When it was first in a file, in Unix seconds."""

    def is_open(self, now: float) -> bool:
        """Whether the usage before it may grow. Recorded requests may be refused ones, so they count at first alone."""
        return self.since > now - AGAIN and self.unit.unit != _REQUESTS

    def of(self, subject: str) -> DrawnUnit:
        """The unit of one subject."""
        return next(unit for unit in self.limit.units(subject) if unit.unit == self.unit.unit)


class Due(NamedTuple):
    """The work for `begin_limits`."""

    now: bool
    later: bool
    """Whether there may be some later."""


def due(connection: Connection, limits: LongLimits, now: float) -> Due:
    """Whether `begin_limits` has work. This excludes no writers, and most repeated counts change nothing."""
    stored, present = _stored(connection), _limited(limits)
    if _gone(stored, present, limits.holders) or present.keys() - stored.keys():
        return Due(now=True, later=True)
    limited = [each._replace(since=stored[name][1]) for name, each in present.items()]
    growing = [each for each in limited if each.is_open(now)]
    changed = any(True for each in growing for _ in _earlier(connection, each, now))
    return Due(now=changed, later=bool(growing))


def begin_limits(connection: Connection, limits: LongLimits, now: float) -> None:
    """Store what was used before each new limit, in a transaction that excludes other writers.

    Of rates at most their amount counts: a rate without debts of its own would not have admitted more.
    """
    stored, present = _stored(connection), _limited(limits)
    for names in in_parts(sorted(_gone(stored, present, limits.holders))):
        connection.execute(delete(begun).where(begun.c.name.in_(names)))
    # An earlier release has no such times. Its limits had their draws from the begin.
    is_upgrade = _FIRST not in stored and connection.execute(select(draws.c.name).limit(1)).first() is not None
    new = sorted(present.keys() - stored.keys())
    since = 0 if is_upgrade else int(now)
    rows = [{"name": name, "holder": present[name].limit.holder, "since": since} for name in new]
    if _FIRST not in stored:
        rows.append({"name": _FIRST, "holder": "", "since": int(now)})
    for some in in_parts(rows):
        connection.execute(insert(begun), some)
    for name, each in present.items():
        limited = each._replace(since=stored[name][1] if name in stored else since)
        if (name in new and not is_upgrade) or limited.is_open(now):
            put_draws(connection, _earlier(connection, limited, now), now)


def _stored(connection: Connection) -> dict[str, tuple[str, int]]:
    """The holder and the time of each limit that was in a file."""
    rows = connection.execute(select(begun.c.name, begun.c.holder, begun.c.since))
    return {name: (holder, since) for name, holder, since in rows}


def _limited(limits: LongLimits) -> dict[str, _Limited]:
    """The units of all limits by their names. Equal limits of a holder are one."""
    return {unit.name: _Limited(limit, unit) for limit in limits.limits for unit in limit.units()}


def _gone(stored: Mapping[str, tuple[str, int]], present: Mapping[str, _Limited], holders: frozenset[str]) -> set[str]:
    """Limits that these tenants and models have no more. Those of others may be in the file of another gateway."""
    return {name for name, (holder, _) in stored.items() if name not in present and holder in holders}


def _earlier(connection: Connection, limited: _Limited, now: float) -> Iterator[Draw]:
    """What the subjects of a limit have used without draws of it."""
    begin, until = limited.unit.slot(limited.since)
    if until <= now:
        return
    used = _used(connection, limited, now)
    units = {subject: limited.of(subject) for subject in used}
    counted, before = _counted(connection, [unit.name for unit in units.values()], begin)
    for subject, unit in units.items():
        amount = _without(limited, used[subject], counted[unit.name], now)
        if amount != before.get(unit.name, 0):
            yield draw_of(EARLIER, unit.name, begin, until, amount)


def _without(limited: _Limited, used: Slots, counted: Slots, now: float) -> int:
    """The used amount without the counted one: of a budget in its window, of a rate what is owed now."""
    unit = limited.unit
    if unit.unit == SPEND:
        begin, _ = unit.slot(limited.since)
        return max(0, used.get(begin, 0) - counted.get(begin, 0))
    most = float(getattr(limited.limit.config, RATED[unit.unit]).amount)
    owed = min(most, debt_of(used, unit, most, now)) - debt_of(counted, unit, most, now)
    return max(0, round(owed * THOUSANDTHS))


def _used(connection: Connection, limited: _Limited, now: float) -> dict[str, Slots]:
    """The recorded usage by subject and slot."""
    limit, unit = limited.limit, limited.unit
    begin, until = unit.slot(limited.since)
    per: Period | None = None
    if unit.unit != SPEND:
        begin, until = int(now - PERIODS * float(unit.period)), int(now) + 2 * HOUR
        per = "hour" if unit.slot_seconds == HOUR else "day"
    config, tests = limit.config, list[tuple[Label, str]]()
    tests += [("team", limit.team)] if limit.team else []
    tests += [("model", limit.model)] if limit.model else []
    labels = () if limit.model else _LABELS[config.per]
    models = None if config.models is None else GlobSet(config.models)
    by = (*labels, *(() if models is None or "model" in labels else ("model",)))
    query = UsageQuery(begin // HOUR, until // HOUR, by, per, limit.tenant or None, tuple(tests), limit=_ALL_ROWS)
    used: dict[str, Slots] = defaultdict(lambda: defaultdict(int))
    for row in rows_of(connection, query):
        subject = WHOLE if limit.model else recorded_subject(config.per, row)
        if subject and (models is None or row["model"] in models):
            used[subject][_slot(row, unit, begin)] += _amount(row, limited)
    return {subject: slots for subject, slots in used.items() if any(slots.values())}


def _slot(row: Mapping[str, Any], unit: DrawnUnit, begin: int) -> int:
    if unit.unit == SPEND:
        return begin
    return int(row["hour"]) * HOUR if "hour" in row else begin_of(row["day"]) // MICROS


def _amount(row: Mapping[str, Any], limited: _Limited) -> int:
    unit, spend = limited.unit.unit, limited.limit.config.spend
    if unit == SPEND:
        return int(row["picos"]) if spend is not None and row["currency"] == spend.currency else 0
    if RATED[unit] == "device_ms":
        return int(row["device_us"])
    if RATED[unit] == "tokens":
        return int(row["prompt_tokens"] + row["completion_tokens"]) * THOUSANDTHS
    return int(row[RATED[unit]]) * THOUSANDTHS


def _counted(connection: Connection, names: Iterable[str], begin: int) -> tuple[dict[str, Slots], dict[str, int]]:
    """The draws by name and slot, and what is stored by now of the usage before the limit, by name."""
    counted: dict[str, Slots] = defaultdict(lambda: defaultdict(int))
    before: dict[str, int] = {}
    columns = [draws.c[name] for name in Draw._fields]
    for part in in_parts(sorted(names)):
        for row in connection.execute(select(*columns).where(draws.c.name.in_(part))):
            draw = Draw(*row)
            if (draw.ledger, draw.begin) == (EARLIER, begin):
                before[draw.name] = draw.whole
            else:
                counted[draw.name][draw.begin] += draw.whole
    return counted, before
