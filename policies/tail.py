"""The choice of requests to trace, at their end, when everything is known.

A head decision would have to guess which requests will be slow or fail; the gateway has the whole record in memory.
"""

from collections import OrderedDict
from collections.abc import Collection

WINDOW = 512
"""Durations of a model from which the threshold of slow requests is computed."""
EVERY = 128
FEWEST = 100
"""Durations below which no request counts as slow."""
SLOWEST = 0.01
MOST_MODELS = 1024

_SPACE = 1 << 56


class SlowThreshold:
    """The 99th percentile of the last `WINDOW` durations, recomputed with every `EVERY`th."""

    __slots__ = ("_count", "_durations", "seconds")

    def __init__(self) -> None:
        self._durations: list[float] = []
        self._count = 0
        self.seconds = float("inf")

    def add(self, seconds: float) -> bool:
        """Count a duration. Returns whether it is above the percentile of those before it."""
        slow = seconds > self.seconds
        if len(self._durations) < WINDOW:
            self._durations.append(seconds)
        else:
            self._durations[self._count % WINDOW] = seconds
        self._count += 1
        if self._count >= FEWEST and self._count % EVERY == 0:
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

    def samples(self, trace_id: bytes) -> bool:
        """Whether the share includes a trace, known from its start."""
        return int.from_bytes(trace_id[-7:], "big") < self._bound

    def selects(self, model: str, seconds: float, *, failed: bool, rerouted: bool, rollout: bool) -> bool:
        """Whether a rule selects a request that has ended. Every request must be presented, also a selected request.

        `failed`: by the server's fault, or as a broken stream. `rerouted`: retried, hedged, resumed, or answered by a
        fallback. `rollout`: assigned to the new arm of a rollout.
        """
        slow = False
        if self._slowest:
            threshold = self._slow.get(model)
            slow = (self._new_threshold(model) if threshold is None else threshold).add(seconds)
        return slow or (failed and self._errors) or (rerouted and self._rerouted) or (rollout and self._rollouts)

    def _new_threshold(self, model: str) -> SlowThreshold:
        threshold = self._slow[model] = SlowThreshold()
        if len(self._slow) > MOST_MODELS:
            self._slow.popitem(last=False)
        return threshold
