"""The end of a request at its arm, and the events that it may have."""

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from config.schema.rollout import EventConfig

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
