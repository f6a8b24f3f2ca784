"""Counters of executions."""

from typing import Protocol


class Recorder(Protocol):
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        """Count an executed batch. `queued` is the sum over its requests, in seconds like `computed`."""
        ...

    def cache_hit(self, seconds: float) -> None:
        """Count a response from the cache or of an identical request in flight, and the seconds of the look-up."""
        ...

    def cache_missed(self, seconds: float) -> None: ...


class NoRecorder:
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        return

    def cache_hit(self, seconds: float) -> None:
        return

    def cache_missed(self, seconds: float) -> None:
        return
