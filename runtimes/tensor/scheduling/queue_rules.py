"""Priorities, and the bounds of the waiting requests of each priority."""

from __future__ import annotations

from runtimes.tensor.configuration.model_config import DynamicBatching, QueuePolicy

LONGEST_WAIT = 600.0
"""The longest time in the queue, for requests without another bound: every wait ends."""
MAX_QUEUE_SIZE = 4096
"""Waiting requests of each level, unless the model has a bound."""


class QueueRules:
    """The rules of one model. A level is a priority, 1 the most urgent, or 0 if there are none."""

    def __init__(self, rules: DynamicBatching) -> None:
        self._levels = rules.priority_levels
        self._default_level = rules.default_priority_level or rules.priority_levels
        self._policies = rules.priority_queue_policy if rules.priority_levels else {}
        self._policy = rules.default_queue_policy

    def level(self, priority: int) -> int:
        """The level of a request with this priority; the default level if it does not exist."""
        return priority if 1 <= priority <= self._levels else self._default_level

    def expiry(self, level: int, now: float, due: float, timeout: float) -> float:
        """The time at which the queue rejects or delays a request. `timeout` is the request's own, in seconds, 0 for
        none; it applies unless a configured policy forbids it."""
        policy = self._policies.get(level, self._policy) if level else self._policy
        limit = policy.default_timeout or LONGEST_WAIT
        if timeout > 0 and (policy.allow_timeout_override or policy == QueuePolicy()):
            limit = min(limit, timeout)
        return min(due, now + limit)

    def max_size(self, level: int) -> int:
        """The number of requests that may wait."""
        return self._policies.get(level, self._policy).max_queue_size or MAX_QUEUE_SIZE

    def delays(self, level: int) -> bool:
        """Whether an overdue request is delayed and not rejected."""
        return self._policies.get(level, self._policy).timeout_action == "delay"
