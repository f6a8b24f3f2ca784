"""The end of a request at its arm, and the events that it may have."""

from collections.abc import Callable
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


Occurs = Callable[[ArmOutcome], bool]


def occurs(event: EventConfig) -> Occurs:
    """The predicate of an event. Each is decided by the arm alone.

    A time above a bound is an event as soon as the bound has passed, also of a request that the client cancels later.
    """
    bound = event.slower_than or 0.0
    return {
        "failures": lambda end: end.kind in FAILED,
        "first_byte": lambda end: (end.total if end.first_byte is None else end.first_byte) > bound,
        "total": lambda end: end.total > bound,
        "retries": lambda end: end.retried,
        "rejections": lambda end: end.kind == "caller" and not end.blocked,
        "blocked": lambda end: end.blocked,
    }[event.metric]
