"""Generated lives of the rows of a shared table: operations of two workers, with all limits, amounts and times."""

from random import Random
from typing import Any, NamedTuple

from config.schema.limits import LimitsConfig
from config.schema.money import Period, Spend
from config.schema.units import RateLimit
from gateway.limits.allowance import Hold
from gateway.limits.shared import SharedTable
from gateway.limits.shared_allowance import SharedAllowance
from policies.limits.limits import RATED, Amounts

NOON = 1_835_438_400.0
PERIODS: tuple[Period, ...] = ("hour", "day", "month")
CAPACITIES = (1, 2, 3, 7, 100, 1000, 999_983, 10**9, 2**51 - 1, 2**53 + 2)
PICOS = (0, 1, 7, 10**9, 3 * 10**12, 10**15, 10**15, 10**18, 2**61 - 1, 2**61, 2**64, 2**90)
STEPS = (0.0, 0.0, 0.0, 1e-7, 1e-4, 0.1, 0.1, 1.0, 1.0, 59.9, 59.9, 3600.0, -1.0, 86_400.0, 3e6)
SUBJECTS = ("tenant", "user:ann")
Operation = tuple[Any, ...]


class Life(NamedTuple):
    """The limits of each worker and subject at first, and operations."""

    limits: list[LimitsConfig]
    operations: list[Operation]


def lives(rng: Random) -> Life:
    """Mostly workers with the same limits."""
    limits = _limits(rng)
    first = [limits if rng.random() < 0.8 else _limits(rng) for _ in range(2 * len(SUBJECTS))]
    return Life(first, [_operation(rng) for _ in range(rng.randrange(2, 40))])


def _limits(rng: Random) -> LimitsConfig:
    given: dict[str, Any] = {}
    for unit in RATED:
        if rng.random() < 0.5:
            given[unit] = RateLimit(rng.choice(CAPACITIES), rng.choice((1.0, 60.0, 3600.0, 2_678_400.0)))
    if rng.random() < 0.5:
        given["spend"] = Spend(max(1, rng.choice(PICOS)), "usd", rng.choice(PERIODS))
    if rng.random() < 0.4:
        given["concurrency"] = rng.choice((1, 2, 5, 1000))
    return LimitsConfig.model_construct(**given)


def _amount(rng: Random) -> float:
    if rng.random() < 0.9:
        return rng.choice((0, 1, 1.0, 3, 0.1, rng.random() * 10, rng.randrange(1000)))
    return rng.choice((2**51 - 1, 2**51, 1e300, 2.0**70))


def _amounts(rng: Random) -> Amounts:
    return (1, _amount(rng), _amount(rng), _amount(rng), _amount(rng))


def _picos(rng: Random) -> int:
    return rng.choice(PICOS) if rng.random() < 0.2 else rng.randrange(10**12)


def _operation(rng: Random) -> Operation:
    at = (rng.randrange(2), rng.randrange(len(SUBJECTS)), rng.choice(STEPS), rng.choice(STEPS))
    kind = rng.choices(("take", "settle", "undo", "configure", "release", "look"), (12, 8, 3, 1, 0.3, 1))[0]
    match kind:
        case "take":
            return kind, *at, _amounts(rng) if rng.random() < 0.9 else (1, 2**70, 2**64, 2**63, 0), _picos(rng)
        case "settle":
            return kind, *at, rng.random(), _amounts(rng), _picos(rng)
        case "undo":
            return kind, *at, rng.random()
        case "configure":
            return kind, *at, _limits(rng)
    return kind, *at


class Play:
    """The table of a life while it is lived."""

    def __init__(self, limits: list[LimitsConfig]) -> None:
        self._parent = SharedTable.create(2, few=8, many=1)
        self._tables = [SharedTable.attach(self._parent.fd, worker=number) for number in range(2)]
        self.now, self.utc = 5.0, NOON
        for table in self._tables:
            table.wall = lambda: self.utc
        places = [(table, subject) for table in self._tables for subject in SUBJECTS]
        self._allowances = [
            SharedAllowance(table, "limit", subject, limit, None, self.now, self.utc)
            for (table, subject), limit in zip(places, limits, strict=True)
        ]
        self._holds: list[list[Hold]] = [[] for _ in places]

    def close(self) -> None:
        self._holds.clear()  # the collector does not look into them
        for table in (self._parent, *self._tables):
            table.close()

    def live(self, operation: Operation) -> object:
        """The result of an operation, what reports read afterwards, and the table."""
        kind, worker, subject, passed, passed_utc, *arguments = operation
        self.now += passed
        self.utc += passed_utc
        place = worker * len(SUBJECTS) + subject
        result = self._result(kind, place, arguments)
        table, allowance = self._parent, self._allowances[place]
        reports = [(float(bucket.level), bucket.at) for bucket in allowance.buckets.values()] if result else []
        if result and (budget := allowance.spend) is not None:
            reports.append((budget.used, budget.window, budget.start, budget.end))  # type: ignore[arg-type]
        words = memoryview(table.memory)[table.offsets(0, 0)[1] :].cast("Q")
        return result, reports, {i: word for i, word in enumerate(words) if word}

    def _result(self, kind: str, place: int, arguments: list[Any]) -> object:
        allowance, holds = self._allowances[place], self._holds[place]
        if kind == "take":
            amounts, picos = arguments
            hold = allowance.take(amounts, picos, self.now, self.utc)
            if hold is None:
                return None
            holds.append(hold)
            return hold.reserved, hold.picos, hold.window
        if kind in ("settle", "undo") and holds:
            hold = holds.pop(int(arguments.pop(0) * len(holds)))
            getattr(allowance, kind)(hold, *arguments, self.now)
            return kind
        if kind == "configure":
            allowance.configure(arguments[0], self.now, self.utc)
        elif kind == "release":  # the worker died: its holds died with it
            worker = place // len(SUBJECTS)
            self._parent.release_worker(worker, self.now)
            for other in range(len(SUBJECTS)):
                self._holds[worker * len(SUBJECTS) + other].clear()
        elif kind == "look":
            return allowance.remaining(self.now, self.utc)
        return None


def outcome_of(life: Life) -> list[object]:
    """The results of all operations."""
    play = Play(life.limits)
    try:
        return [play.live(operation) for operation in life.operations]
    finally:
        play.close()
