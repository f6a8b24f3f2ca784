"""Who counts what is computed."""

from typing import Protocol


class Recorder(Protocol):
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        """One batch was answered. `queued` is the sum over its requests, in seconds as `computed`."""
        ...

    def cache_hit(self, seconds: float) -> None:
        """An answer was found, or is on its way for somebody else; it took so long to find it."""
        ...

    def cache_missed(self, seconds: float) -> None: ...


class NoRecorder:
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        return

    def cache_hit(self, seconds: float) -> None:
        return

    def cache_missed(self, seconds: float) -> None:
        return
