"""Whether a line that failed runs again: lack of capacity never fails a line before its batch expires."""

from math import isfinite
from typing import Literal, NamedTuple

MOST_FAILURES = 4
"""Attempts of a line whose servers fail."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

FailureKind = Literal["caller", "credential", "capacity", "backend", "transport", "deadline", "cancelled"]


class LineRetry(NamedTuple):
    """Run the line again after a pause. `counts` tells whether the attempt counts as a failure."""

    pause: float
    counts: bool


def retry_of(
    kind: FailureKind,
    retry_after: float | None,
    failures: int,
    left: float,
    *,
    most: int = MOST_FAILURES,
    first: float = FIRST_PAUSE,
) -> LineRetry | None:
    """The next attempt of a line with `left` seconds until its batch expires; None if the failure is final."""
    pause = min(LONGEST_PAUSE, first * 2.0**failures)
    if kind == "capacity":
        wait = pause if retry_after is None else max(first, retry_after)
        return LineRetry(min(wait, LONGEST_PAUSE, max(left, 0.0)), counts=False) if isfinite(wait) else None
    if kind in ("backend", "transport", "deadline") and failures + 1 < most and pause < left:
        return LineRetry(pause, counts=True)
    return None
