"""Counters of executions."""

from typing import Protocol


class Recorder(Protocol):
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        """One batch was answered. `queued` is the sum over its requests, in seconds as `computed`."""
        ...

    def cache_hit(self, seconds: float) -> None:
        """A response was in the cache, or is computed for an identical request; the look-up took so long."""
        ...

    def cache_missed(self, seconds: float) -> None: ...


class NoRecorder:
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        return

    def cache_hit(self, seconds: float) -> None:
        return

    def cache_missed(self, seconds: float) -> None:
        return
