"""Bounds of times that are quantiles of an arm: measured before the events that they decide, and fixed from then on."""

from collections.abc import Iterable, Sequence

from config.schema.rollout import EventConfig
from policies.sequential.quantiles import Bins, quantile

FEWEST_TIMES = 200
"""Times that a quantile needs."""


def quantile_events(events: Iterable[EventConfig]) -> Sequence[EventConfig]:
    """The events whose bound is a quantile, such as p95."""
    return [event for event in events if isinstance(event.slower_than, str)]


def frozen_bounds(events: Sequence[EventConfig], times: Bins) -> dict[str, float]:
    """The bound of each event in seconds, by its key."""
    return {event.key: quantile(times, float(str(event.slower_than)[1:]) / 100) for event in events}
