"""The type of a check."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from adapters.conformance.bench import Bench

Run = Callable[[Bench], Awaitable[None]]


class Check(NamedTuple):
    """A check of one feature, with the reason why the feature matters. `run` raises for a violation."""

    feature: str
    why: str
    run: Run
    absence: Run | None = None
    """Replaces `run` if the protocol lacks the feature: checks that the adapter rejects requests for it."""
