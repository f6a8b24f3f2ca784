"""The counts of one process for the arms of a comparison, under one set of shares, and the ends of requests."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from config.schema.rollout import EventConfig
from policies.rollouts.tally import MEASURING, ArmTally, add_counts
from policies.sequential.quantiles import bin_of
from policies.sequential.subexponential import WideSum

FAILED = frozenset({"capacity", "backend", "transport", "deadline"})
"""Kinds of errors that are the arm's. The client's errors and cancellations are not."""


class ArmOutcome(NamedTuple):
    """The end of a request. Times are seconds since the request was given to the arm."""

    kind: str
    """The kind of the error; empty for an answer."""
    first_byte: float | None
    """When the answer began; None if it did not."""
    total: float
    blocked: bool = False
    """Whether a guard of the arm's pipeline blocked the request or the answer."""
    retried: bool = False
    refused: bool = False
    """Whether the answer of a language model refuses, if that is counted."""


Occurs = Callable[[ArmOutcome], bool]
NO_BOUNDS: Mapping[str, float] = {}


def bound_of(event: EventConfig, bounds: Mapping[str, float]) -> float:
    """The bound of an event's time, in seconds. Without the bound of a quantile no time is an event."""
    slower = event.slower_than
    return slower if isinstance(slower, float) else bounds.get(event.key, inf)


def occurs(event: EventConfig, bounds: Mapping[str, float] = NO_BOUNDS) -> Occurs:
    """The predicate of an event. Each is decided by the arm alone.

    A time above a bound is an event as soon as the bound has passed, also of a request that the client cancels later.
    """
    bound = bound_of(event, bounds)
    return _PREDICATES[event.metric](bound) if event.metric in _PREDICATES else lambda _: False


_PREDICATES: dict[str, Callable[[float], Occurs]] = {
    "failures": lambda _: lambda end: end.kind in FAILED,
    "first_byte": lambda bound: lambda end: (end.total if end.first_byte is None else end.first_byte) > bound,
    "total": lambda bound: lambda end: end.total > bound,
    "retries": lambda _: lambda end: end.retried,
    "rejections": lambda _: lambda end: end.kind == "caller" and not end.blocked,
    "refusals": lambda _: lambda end: end.refused,
    "blocked": lambda _: lambda end: end.blocked,
}
"""By the metric. The events of other metrics are not ends of requests: clients report them."""


MOST_TOKENS = 32_768
"""The tokens of a longer answer count as so many."""
MOST_TIMES = 512
"""Times of one arm between two reports of one process: the first ones, in both arms."""
_NOTHING = ArmTally()
CountSubject = Callable[[ArmTally, str, int, int], None]
"""Counts a subject once for an event: of a tally, the key of the event, the subject and the arm."""


class Assignment(Protocol):
    """The arm of a request, while its comparison counts."""

    @property
    def count(self) -> "ArmCount": ...
    @property
    def subject(self) -> int | None: ...
    def end(self, outcome: ArmOutcome, tokens: int | None = None) -> None:
        """Count the end of the request under the shares with which it was assigned. Call it once."""

    def answered(self, first_byte: float, tokens: int) -> None:
        """Count a whole answer without retries: `end`, but faster if it is too fast for any event."""


class ArmCount:
    """One arm under one set of shares: the assignment of all of its requests that are subjects of their own."""

    __slots__ = ("arm", "assigned", "ended", "fast", "head", "stratum", "times", "tokens")

    def __init__(self, stratum: "LiveStratum", arm: int, expected: "Expected | None") -> None:
        self.stratum = stratum
        self.arm = arm
        self.fast = inf
        """Seconds up to which no time of an answer is an event."""
        self.head = b""
        """The first bytes of the signed ids of its requests."""
        self.assigned = 0
        self.ended = 0
        self.times: list[float] = []
        """Seconds to the first byte of the first answers since the last report."""
        self.tokens = expected

    @property
    def count(self) -> "ArmCount":
        return self

    @property
    def subject(self) -> int | None:
        """The number of the request's subject; None if each request is its own."""
        return None

    def end(self, outcome: ArmOutcome, tokens: int | None = None) -> None:
        self.stratum.count(self.arm, None, outcome, tokens)

    def answered(self, first_byte: float, tokens: int) -> None:
        if first_byte > self.fast:
            self.end(ArmOutcome("", first_byte, first_byte), tokens)
            return
        self.ended += 1
        if len(times := self.times) < MOST_TIMES:
            times.append(first_byte)
        if self.tokens is not None:
            self.tokens.add(tokens)


class SubjectAssignment:
    """The assignment of a request whose subject stays with its arm."""

    __slots__ = ("count", "subject")

    def __init__(self, count: ArmCount, subject: int) -> None:
        self.count = count
        self.subject = subject

    def end(self, outcome: ArmOutcome, tokens: int | None = None) -> None:
        self.count.stratum.count(self.count.arm, self.subject, outcome, tokens)

    def answered(self, first_byte: float, tokens: int) -> None:
        if first_byte > self.count.fast:
            self.end(ArmOutcome("", first_byte, first_byte), tokens)
        else:
            self.count.answered(first_byte, tokens)


class Expected:
    """The tokens of the answers of one arm since the last report, and the mean of all before each."""

    __slots__ = ("count", "sums", "total")

    def __init__(self) -> None:
        self.sums = WideSum()
        self.count = 0
        self.total = 0.0

    def add(self, tokens: int) -> None:
        """Add an answer."""
        self.sums.add(tokens, MOST_TOKENS, self.total / self.count if self.count else 0.0)
        self.count += 1
        self.total += min(tokens, MOST_TOKENS)


class LiveStratum:
    """The counts of one process under one set of shares."""

    __slots__ = ("_bounds", "_count_subject", "_events", "_expected", "counts", "number", "reads", "tally")

    def __init__(
        self,
        number: int,
        arms: int,
        expected: "Sequence[Expected]",
        count_subject: CountSubject,
        bounds: Mapping[str, float] = NO_BOUNDS,
    ) -> None:
        """`bounds` has the bounds of times that are quantiles, by the key of an event."""
        self.number = number
        self.reads = False
        """Whether answers are read, to count those that refuse."""
        self._bounds = bounds
        self.tally: ArmTally | None = ArmTally()
        """Replaced at each report; None after a reset."""
        self.counts = tuple(ArmCount(self, arm, expected[arm] if expected else None) for arm in range(arms))
        self._expected = expected
        self._count_subject = count_subject
        self._events: tuple[tuple[str, Occurs], ...] = ()

    def configure(self, events: Sequence[EventConfig]) -> None:
        """Count these events from now on. A stratum that measures counts times only."""
        bounds, events = self._bounds, () if self.number == MEASURING else events
        self.reads = any(event.metric == "refusals" for event in events)
        fast = min((bound_of(event, bounds) for event in events if event.slower_than is not None), default=inf)
        self._events = tuple((event.key, occurs(event, bounds)) for event in events)
        for count in self.counts:
            count.fast = fast

    def count(self, arm: int, subject: int | None, outcome: ArmOutcome, tokens: int | None) -> None:
        """Count the end of a request."""
        tally, count = self.tally, self.counts[arm]
        if tally is None:
            return
        if outcome.kind != "cancelled":
            count.ended += 1
            if outcome.first_byte is not None and len(count.times) < MOST_TIMES:
                count.times.append(outcome.first_byte)
            if tokens is not None and count.tokens is not None:
                count.tokens.add(tokens)
        for key, happens in self._events:
            if happens(outcome):
                if subject is not None:
                    self._count_subject(tally, key, subject, arm)
                    continue
                counts = tally.events.get(key)
                if counts is None:
                    counts = tally.events[key] = [0] * len(self.counts)
                counts[arm] += 1

    def take(self) -> ArmTally | None:
        """The counts since the last report; None without any."""
        tally, self.tally = self.tally, ArmTally()
        if tally is None:
            return None
        if any(count.assigned for count in self.counts):
            add_counts(tally.assigned, [count.assigned for count in self.counts])
        if any(count.ended for count in self.counts):
            tally.ended = [count.ended for count in self.counts]
            tally.first_byte = [dict(Counter(map(bin_of, count.times))) for count in self.counts]
            for count in self.counts:
                count.times.clear()
        for count in self.counts:
            count.assigned = count.ended = 0
        if any(each.sums.count for each in self._expected):
            tally.tokens = [each.sums for each in self._expected]
            for each in self._expected:
                each.sums = WideSum()
        return None if tally == _NOTHING else tally
