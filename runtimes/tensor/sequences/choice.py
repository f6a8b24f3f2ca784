"""Chooses the sequences of one copy that compute together, and the time. Pure: time is an argument.

direct   a sequence has its own slot of the batch until it ends; a model may store state by slot
oldest   turns that came first are joined like any other requests, one of each sequence at most
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import NamedTuple

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.scheduling.latency import LatencyCurve
from runtimes.tensor.sequences.sequence import Turn

MAX_CANDIDATES = 256
"""Open sequences of one copy, unless the model has a bound."""


class Choice(NamedTuple):
    turns: list[Turn]
    """The chosen turns; empty until `wake_at`."""
    wake_at: float = inf


class Chooser:
    """Selects the requests of the next batch of one model's sequences."""

    def __init__(self, config: ModelConfig, curve: LatencyCurve, key: Callable[[Turn], Hashable]) -> None:
        rules = config.sequence_batching
        assert rules is not None
        self._rules = rules
        self._curve = curve
        self._key = key
        self.max_rows = max(1, config.max_batch_size)
        self.direct = rules.strategy == "direct"
        self.slots = self.max_rows if self.direct else rules.max_candidate_sequences or MAX_CANDIDATES

    def choose(self, heads: list[Turn], open_: int, now: float) -> Choice:
        """Chooses among the first turns of ready sequences, at least one, while so many are open on this copy."""
        heads = sorted(heads, key=_order)
        until = self._wait_until(heads, open_, now)
        if until > now:
            return Choice([], until)
        key = self._key(heads[0])
        alike = [turn for turn in heads if turn is heads[0] or self._key(turn) == key]
        return Choice(alike[: self._size(len(alike))])

    def _size(self, count: int) -> int:
        if self.direct:
            return count
        return max((size for size in self._rules.preferred_batch_size if size <= count), default=self.max_rows)

    def _wait_until(self, heads: list[Turn], open_: int, now: float) -> float:
        """The longest useful wait for more turns; 0 for sequences that are not open."""
        count = len(heads)
        if count >= min(open_, self.max_rows) or not self._rules.max_queue_delay:
            return now
        limit = min(heads[0].arrived + self._rules.max_queue_delay, heads[0].due)
        if self.direct:
            return now if count >= self._rules.minimum_slot_utilization * self.slots else limit
        if count in self._rules.preferred_batch_size:
            return now
        return min(limit, heads[-1].arrived + self._curve.saving(count))


def _order(turn: Turn) -> int:
    return turn.order
