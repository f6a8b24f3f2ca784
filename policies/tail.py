"""The choice of requests to trace, at their end, when everything is known.

A head decision would have to guess which requests will be slow or fail; the gateway has the whole record in memory.
"""

from collections import OrderedDict, deque
from collections.abc import Collection

WINDOW = 512
"""Durations of a model from which the threshold of slow requests is computed."""
FEWEST = 128
"""Durations below which no request counts as slow."""
SLOWEST = 0.01
BURST = 8.0
"""Slow requests that may be selected at once. When a server becomes slow, all of its requests are above the percentile
of those before: beyond the burst, one in a hundred is selected."""
MOST_MODELS = 1024

_SPACE = 1 << 56
_LAST_BITS = _SPACE - 1


class SlowThreshold:
    """The 99th percentile of the last `WINDOW` durations. It is recomputed at the latest after as many."""

    __slots__ = ("_count", "_credit", "_durations", "_next", "seconds")

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=WINDOW)
        self._count = 0
        self._next = FEWEST
        self._credit = 0.0
        """Requests that may be selected."""
        self.seconds = float("inf")

    def add(self, seconds: float) -> bool:
        """Count a duration. Returns whether it is selected: it is above the percentile of those before it, and fewer
        than one in a hundred were selected so far."""
        self._durations.append(seconds)
        self._count += 1
        credit = self._credit + SLOWEST
        slow = seconds > self.seconds and credit >= 1.0
        self._credit = credit - 1.0 if slow else min(credit, BURST)
        if self._count == self._next:
            self._next += min(self._count, WINDOW)
            ordered = sorted(self._durations)
            self.seconds = ordered[int(len(ordered) * (1 - SLOWEST))]
        return slow


class TailSampler:
    """Chooses requests by rules, and a share of all others by their trace's id.

    The share depends on the id alone, so that every gateway and every worker makes the same choice for one trace
    (https://www.w3.org/TR/trace-context-2/#random-trace-id-flag: the last 56 bits of an id are random).
    """

    def __init__(self, keep: Collection[str], share: float) -> None:
        self._slowest, self._errors = "slowest" in keep, "errors" in keep
        self._rerouted, self._rollouts = "rerouted" in keep, "rollouts" in keep
        self._bound = round(share * _SPACE)
        self._slow: OrderedDict[str, SlowThreshold] = OrderedDict()

    def samples(self, trace: int) -> bool:
        """Whether the share includes a trace, known from its start."""
        return trace & _LAST_BITS < self._bound

    def is_slow(self, model: str, seconds: float) -> bool:
        """Whether a request is among the slowest of its model. Every request must be presented, also a selected one."""
        if not self._slowest:
            return False
        threshold = self._slow.get(model)
        return (self._new_threshold(model) if threshold is None else threshold).add(seconds)

    def selects(self, *, failed: bool, rerouted: bool, rollout: bool) -> bool:
        """Whether a rule selects a request by its outcome.

        `failed`: by the server's fault, or as a broken stream. `rerouted`: retried, hedged, resumed, or answered by a
        fallback. `rollout`: assigned to the new arm of a rollout.
        """
        return (failed and self._errors) or (rerouted and self._rerouted) or (rollout and self._rollouts)

    def _new_threshold(self, model: str) -> SlowThreshold:
        threshold = self._slow[model] = SlowThreshold()
        if len(self._slow) > MOST_MODELS:
            self._slow.popitem(last=False)
        return threshold
