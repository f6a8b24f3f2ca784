"""Writes a batch. One item that can never be written stops and repeats none of the others."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gateway.state.faults import is_outage

log = logging.getLogger(__name__)
T = TypeVar("T")
LOOPS = ("alerts", "audit", "feedback", "requests", "rollouts", "shadows", "stored responses", "usage")
refused = Counter(dict.fromkeys(LOOPS, 0))
"""Items of this process that its databases have refused, by loop. From 0: a series that begins has no increase."""


class BatchOutcome(NamedTuple):
    """The end of the first items of a batch. The others wait for a database that is away."""

    ended: int
    """How many of the first items are written or refused."""
    refused: Mapping[int, Exception]
    """The error of each refused item, by its place in the batch."""
    outage: Exception | None


def write_each(items: Sequence[T], write: Callable[[Sequence[T]], object]) -> BatchOutcome:
    """Write items in their order, all at once if that is possible. Blocks.

    A call of `write` writes all of its items or none. A call that is refused is repeated with half of its items, down
    to the item that is the reason. What is written is never written again.
    """
    errors: dict[int, Exception] = {}
    at, size = 0, len(items)
    while at < len(items):
        part = items[at : at + size]
        try:
            write(part)
        except Exception as error:
            if is_outage(error):
                return BatchOutcome(at, errors, error)
            if len(part) > 1:
                size = len(part) // 2
                continue
            errors[at] = error
        else:
            size *= 2
        at += len(part)
    return BatchOutcome(at, errors, None)


def refuse(loop: str, item: str, error: Exception) -> None:
    """Count and log an item that is refused. `item` names it, without the texts of clients."""
    reason = type(error.__cause__ or error).__name__
    refused[loop] += 1
    log.error("%s: %s is not stored: %s: %s", loop, item, reason, " ".join(str(error).split())[:300])
