"""What a request may meet on its way beyond an attempt: the counters, and what its log line says."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily

Event = tuple[str, str]
"""What happened, and the name of the pool or model where it did."""


class _Family(NamedTuple):
    name: str
    help: str
    label: str


_FAMILIES = {
    "hedge": _Family("headrace_hedges", "Second attempts begun because the first was late.", "pool"),
    "resume": _Family("headrace_resumes", "Broken streams that another endpoint carried on.", "pool"),
    "resume_failure": _Family("headrace_resume_failures", "Broken streams that nobody carried on, when asked.", "pool"),
    "hedge_win": _Family("headrace_hedge_wins", "Second attempts that began to answer first.", "pool"),
}


def families(counts: Counter[Event]) -> Iterator[CounterMetricFamily]:
    """One for each kind of event, seen or not."""
    for kind, family in _FAMILIES.items():
        metric = CounterMetricFamily(family.name, family.help, labels=(family.label,))
        for (event, where), count in counts.items():
            if event == kind:
                metric.add_metric((where,), count)
        yield metric


def times(events: tuple[Event, ...], kind: str) -> int | None:
    """How often it happened to one request; None for never, so that its log line leaves it out."""
    return sum(event == kind for event, _ in events) or None
