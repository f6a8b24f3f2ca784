"""Events of a call beyond its attempts: as counters, and as fields of its log line."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily

Event = tuple[str, str]
"""The kind of an event, and the name of its pool or model."""


class _Family(NamedTuple):
    name: str
    help: str
    label: str
    result: str | None = None
    """The value of a second label, for kinds that share one counter."""


_CACHE = ("headrace_cache_requests", "Requests of routes with a cache, by result.", "model")
_FAMILIES = {
    "retry": _Family("headrace_retries", "Attempts after a failed attempt.", "pool"),
    "fallback": _Family("headrace_fallbacks", "Answers of a fallback pool after a pool failed.", "pool"),
    "hedge": _Family("headrace_hedges", "Second attempts, begun because the first was late.", "pool"),
    "hedge_win": _Family("headrace_hedge_wins", "Second attempts that answered before the first.", "pool"),
    "resume": _Family("headrace_resumes", "Broken streams that another endpoint continued.", "pool"),
    "resume_failure": _Family("headrace_resume_failures", "Broken streams that no endpoint could continue.", "pool"),
    "implausible_usage": _Family(
        "headrace_implausible_usage", "Answers whose server reported an impossible number of tokens.", "pool"
    ),
    "cache_hit": _Family(*_CACHE, "hit"),
    "cache_miss": _Family(*_CACHE, "miss"),
    "cache_coalesced": _Family(*_CACHE, "coalesced"),
    "cache_bypass": _Family(*_CACHE, "bypass"),
}


def families(counts: Counter[Event]) -> Iterator[CounterMetricFamily]:
    """One family for each counter, even without events."""
    made: dict[str, CounterMetricFamily] = {}
    for name, help_, label, result in _FAMILIES.values():
        labels = (label,) if result is None else (label, "result")
        made.setdefault(name, CounterMetricFamily(name, help_, labels=labels))
    for (kind, where), count in counts.items():
        name, _, _, result = _FAMILIES[kind]
        made[name].add_metric((where,) if result is None else (where, result), count)
    yield from made.values()


def times(events: tuple[Event, ...], kind: str) -> int | None:
    """The number of events of a kind in one request; None for 0, so that the log line omits the field."""
    return sum(event == kind for event, _ in events) or None


def cached(events: tuple[Event, ...]) -> str | None:
    """The result of the cache for one request; None without a cache."""
    return next((_FAMILIES[kind].result for kind, _ in events if kind.startswith("cache_")), None)
