"""Sums of ended requests, by model, tenant and pool. Sums of several processes and times can be added up."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from gateway.telemetry.record import Record

Dimension = Literal["models", "tenants", "pools"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("models", "tenants", "pools")
FAILURES: Final = frozenset({"backend", "transport", "deadline", "capacity"})
"""Kinds of errors that are failures of the service, except those with the status 429."""
OTHERS: Final = "(others)"
MOST_NAMES: Final = 100
"""Names of one dimension, and causes. Further ones share `OTHERS`."""
_REFUSALS = frozenset({"caller", "credential"})
_GROWTH = math.log(1.1)
"""Ranges of a time grow by a tenth, so that a quantile is right to 5 %."""
_SHORTEST = 1e-4
NUMBERS: Final = ("requests", "failures", "refused", "tokens", "rows")


def range_of(seconds: float) -> int:
    """The number of the range of a time."""
    return round(math.log(max(seconds, _SHORTEST)) / _GROWTH)


def quantiles(counts: Mapping[int, int], shares: Sequence[float]) -> list[float | None]:
    """Quantiles of times that are counted by range, in seconds, for rising shares; None without a time."""
    ordered = iter(sorted(counts.items()))
    total, passed, number, made = sum(counts.values()), 0, 0, list[float | None]()
    for share in shares if counts else ():
        while passed < share * total:
            number, count = next(ordered)
            passed += count
        made.append(math.exp(number * _GROWTH))
    return made or [None] * len(shares)


def is_failure(kind: str, status: int) -> bool:
    """Whether an end is a failure of the service."""
    return kind in FAILURES and status != 429


class Figures:
    """Sums of ended requests. Times are counts by `range_of`, money is in picos by currency.

    A failure is one of the service: of an endpoint, a deadline, a lack of capacity. A refusal is one of a request that
    has no right, is over a limit or is wrong.
    """

    __slots__ = ("durations", "failures", "first_chunks", "picos", "refused", "requests", "rows", "tokens")

    def __init__(self) -> None:
        self.requests = self.failures = self.refused = self.tokens = self.rows = 0
        self.picos: dict[str, int] = {}
        self.durations: Counter[int] = Counter()
        self.first_chunks: Counter[int] = Counter()

    def count(self, record: Record) -> None:
        """Count a request that has ended."""
        self.requests += 1
        if (error := record.error) is not None:
            if error.kind in _REFUSALS or record.status == 429:
                self.refused += 1
            elif is_failure(error.kind, record.status):
                self.failures += 1
        if record.trace.first_chunk:
            self.durations[range_of(record.ended - record.started)] += 1
            self.first_chunks[range_of(record.trace.first_chunk - record.started)] += 1
        if (usage := record.usage) is not None:
            self.tokens += usage.prompt_tokens + usage.completion_tokens
            self.rows += usage.rows
        if (cost := record.cost) is not None:
            self.picos[cost.currency] = self.picos.get(cost.currency, 0) + cost.picos

    def add(self, other: "Figures") -> None:
        """Add the sums of others."""
        self.requests += other.requests
        self.failures += other.failures
        self.refused += other.refused
        self.tokens += other.tokens
        self.rows += other.rows
        for currency, picos in other.picos.items():
            self.picos[currency] = self.picos.get(currency, 0) + picos
        self.durations.update(other.durations)
        self.first_chunks.update(other.first_chunks)

    def describe(self) -> dict[str, Any]:
        """The sums as JSON. What is zero is absent."""
        made: dict[str, Any] = {name: value for name in NUMBERS if (value := getattr(self, name))}
        for name in ("picos", "durations", "first_chunks"):
            if counted := getattr(self, name):
                made[name] = {str(key): value for key, value in counted.items()}
        return made

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> "Figures":
        """The sums that `describe` has written."""
        made = cls()
        for name in NUMBERS:
            setattr(made, name, described.get(name, 0))
        made.picos = dict(described.get("picos", {}))
        for name in ("durations", "first_chunks"):
            getattr(made, name).update({int(key): value for key, value in described.get(name, {}).items()})
        return made


class FigureSet:
    """The sums of all requests of a time, those of each name of each dimension, and the causes of errors."""

    __slots__ = ("all", "causes", "named")

    def __init__(self) -> None:
        self.all = Figures()
        self.named: dict[Dimension, dict[str, Figures]] = {dimension: {} for dimension in DIMENSIONS}
        self.causes: Counter[str] = Counter()
        """Refused and failed requests by status and code."""

    def add(self, other: "FigureSet") -> None:
        """Add the sums of others."""
        self.all.add(other.all)
        for dimension, named in other.named.items():
            for name, figures in named.items():
                self.of(dimension, name).add(figures)
        self.add_causes(other.causes)

    def of(self, dimension: Dimension, name: str) -> Figures:
        """The sums of a name."""
        named = self.named[dimension]
        if name not in named and len(named) >= MOST_NAMES:
            name = OTHERS
        return named.setdefault(name, Figures())

    def add_causes(self, causes: Mapping[str, int]) -> None:
        """Add numbers of requests by cause."""
        for cause, number in causes.items():
            self.causes[cause if cause in self.causes or len(self.causes) < MOST_NAMES else OTHERS] += number

    def fold(self, most: int) -> None:
        """Add up all names of each dimension but those with the most requests."""
        for dimension, named in self.named.items():
            ordered = sorted(named.items(), key=lambda item: (item[0] == OTHERS, -item[1].requests, item[0]))
            self.named[dimension] = dict(ordered[:most])
            for _, figures in ordered[most:]:
                self.named[dimension].setdefault(OTHERS, Figures()).add(figures)

    def describe(self) -> dict[str, Any]:
        """The sums as JSON: entries of lists have a name."""
        made: dict[str, Any] = {"all": self.all.describe()}
        for dimension, named in self.named.items():
            made[dimension] = [{"name": name, **figures.describe()} for name, figures in named.items()]
        made["causes"] = [{"name": cause, "requests": number} for cause, number in self.causes.items()]
        return made

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> "FigureSet":
        """The sums that `describe` has written."""
        made = cls()
        made.all = Figures.read(described.get("all", {}))
        for dimension in DIMENSIONS:
            made.named[dimension] = {each["name"]: Figures.read(each) for each in described.get(dimension, ())}
        made.causes.update({each["name"]: each["requests"] for each in described.get("causes", ())})
        return made
