"""What each pool has served, as sums that a reader subtracts from later ones."""

from typing import Any

from gateway.telemetry.record import Record

_FAILURES = frozenset({"backend", "transport", "deadline", "capacity"})


class PoolTotals:
    """The sums of one pool since the start of the process."""

    __slots__ = ("answers", "failures", "first_chunk_seconds", "requests", "rows", "tokens")

    def __init__(self) -> None:
        self.requests = self.failures = self.answers = self.tokens = self.rows = 0
        self.first_chunk_seconds = 0.0

    def count(self, record: Record) -> None:
        """Count a request that has ended."""
        self.requests += 1
        if record.error is not None and record.error.kind in _FAILURES:
            self.failures += 1
        if record.trace.first_chunk:
            self.answers += 1
            self.first_chunk_seconds += record.trace.first_chunk - record.started
        if (usage := record.usage) is not None:
            self.tokens += usage.prompt_tokens + usage.completion_tokens
            self.rows += usage.rows

    def describe(self) -> dict[str, Any]:
        """The sums as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}
