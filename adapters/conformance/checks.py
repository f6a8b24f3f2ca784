"""The form of a check."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from adapters.conformance.bench import Bench

Run = Callable[[Bench], Awaitable[None]]


class Check(NamedTuple):
    """A feature, why it matters, and how it is seen. `run` returns when all is as it should be."""

    feature: str
    why: str
    run: Run
    absence: Run | None = None
    """Seen to where the protocol lacks the feature: whoever asks for it is told so."""
